"""What files that leave a site hold, in words for whoever lets them leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otmoe.cli.common import few
from otmoe.text.notices import Notice
from otmoe.text.sentences import Warn

if TYPE_CHECKING:
    from otmoe import LocalModel
    from otmoe.documents.reply import RefineReply
    from otmoe.documents.roster import Roster


def shared_rows(message: LocalModel) -> int:
    """Return the number of rows of x in a message."""
    support = getattr(message, "support", None)
    return 0 if support is None else len(support)


def privacy(message: LocalModel) -> str:
    """Say what the numbers of a message are; what they depend on is for the verdict."""
    shared = shared_rows(message)
    rows = f" It contains {shared:,} rows of x unchanged." if shared else ""
    n = f"{message.n_samples:,.10g}"
    return f"Its numbers are estimates from {n} rows; the table says what they depend on.{rows}"


def reply_privacy(reply: RefineReply) -> str:
    """Say what the numbers of a reply are; what they depend on is for the verdict."""
    n, P = reply.content.n_samples, len(reply.content.information.score)
    each = f"{n:,.10g} rows for {P:,} parameters, {n / P:.1f} each"
    return f"Its numbers are sums over {each}; the table says what they depend on."


def scatter_words(reply: RefineReply) -> list[str]:
    """Say how large the scatter of a reply is, if it has one, and over what it is summed."""
    import numpy as np

    found = reply.content.scatter
    if found is None:
        return []
    size = len(np.triu_indices(len(found.matrix))[0])
    over = f"{found.n_rows:,} rows" if found.n_groups is None else f"{found.n_groups:,} groups"
    return [
        f"Its scatter B has {size:,} numbers, each a sum over {over} of products of two scores; "
        "it contains no labels. It measures the uncertainty of the score: for the sandwich, "
        "and to tell real differences between sites from chance."
    ]


MASKED = (
    "It is masked: on its own it reveals only the name of the site and the size of the model; "
    "only the sum over all sites of the roster can be read."
)
"""What a masked reply gives away."""


def roster_lines(roster: Roster) -> list[str]:
    """Say who takes part in a secure sum, and what sites should compare."""
    return [
        f"secure sum over {few(roster.sites)}",
        f"fingerprint of the roster: {roster.fingerprint} (if it differs between sites, a key "
        "was replaced in transit)",
    ]


def why_scatter(between: bool) -> str:
    """Say what a scatter is asked for."""
    return f"for sandwich standard errors{' and to estimate how sites differ' if between else ''}"


def few_groups(reply: RefineReply) -> tuple[Notice, ...]:
    """Say whether the scatter of a reply is one of too few groups to hide each."""
    from otmoe.federation.rounds import LEAST_GROUPS

    found = reply.content.scatter
    if found is None or found.n_scores >= max(LEAST_GROUPS, len(found.matrix) + 1):
        return ()
    what, P = "rows" if found.n_groups is None else "groups", len(found.matrix)
    return (Warn.SHELL_FEW_GROUPS(groups=found.n_scores, what=what, parameters=P),)
