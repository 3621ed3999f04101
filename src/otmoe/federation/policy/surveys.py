"""Release of a survey: columns that may be read, counts that may be disclosed (docs/policy.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otmoe.data.survey import SurveyedSite, guarded, survey
from otmoe.federation.policy.border import Border
from otmoe.federation.policy.rounding import COUNTS
from otmoe.federation.policy.rules import Verdict
from otmoe.federation.policy.verdict import judged_columns, judged_survey


@dataclass(frozen=True)
class ReleasedSurvey:
    """A survey that could leave, and what is to be said about it.

    Attributes
    ----------
    sites : tuple of SurveyedSite
        Without small counts, the others rounded; not to be sent if the verdict is against it.
    verdict : Verdict
    least : int
        Smallest count that is disclosed.
    step : int
        What counts are rounded to.
    left_out : int
        Columns that the policy does not allow, which were not read.
    """

    sites: tuple[SurveyedSite, ...]
    verdict: Verdict
    least: int
    step: int
    left_out: int


def release_survey(
    data: Any,
    border: Border,
    *,
    least: int | None = None,
    site_column: str | None = None,
    **options: Any,
) -> ReleasedSurvey:
    """Count what columns hold, as far as a policy allows; it is for the caller to check it.

    Parameters
    ----------
    data : path, or sequence of paths
    border : Border
    least : int, optional
        Hide counts of fewer rows; by default what the policy says.
    site_column : str, optional
    **options
        Of :func:`otmoe.data.survey.survey`.
    """
    policy = border.policy
    least = policy.smallest_count if least is None else least
    step = 1 if policy.digits is None else COUNTS
    refused: set[str] = set()

    def allowed(column: str) -> bool:
        if not policy.allows(column):
            refused.add(column)
        return policy.allows(column)

    border.check(judged_columns(policy, [site_column] if site_column else []))
    raw = survey(data, site_column=site_column, allowed=allowed, id=policy.id, **options)
    exact = [guarded(found, least) for found in raw]
    sites = tuple(guarded(found, least, step) for found in raw)
    people = policy.id is not None
    verdict = border.verdict(judged_survey(policy, exact, sites), people)
    return ReleasedSurvey(sites, verdict, least, step, len(refused - {policy.id}))
