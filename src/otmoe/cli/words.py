"""Sentences of the package that name a Python argument, reworded for the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

SHELL = {
    Warn.SITES_STAND_OUT.code: "{count} of {total} sites stand out but are included in the "
    "aggregate ({reasons}): check them, or leave them out with --exclude-flagged.",
    Warn.SITES_DIFFER.code: "at {count} of {total} sites the site's own model is expected to do "
    "better than the merged one, by more than chance explains ({names} nats per row): a single "
    "model may not suit all sites; fit personal models as well (otmoe run --personal auto, or "
    "otmoe personalise).",
    Warn.SITE_DOMINATES.code: "site {name!r} claims {share:.3g} of all rows and differs from the "
    "others by more than chance explains, so the result is mostly its own: limit it with "
    "--max-weight, or use --exclude-flagged.",
    Warn.WEIGHT_LIMITED.code: "the weight of {names} was limited to {most:.3g} of the total (its "
    "share of the rows is {share:.3g}); --max-weight 1 lifts the limit.",
    Error.REPLIES_MISSING.code: "round {round}: no reply from {names}; wait for it, or continue "
    "without it (--allow-missing).",
    Error.COLUMN_MISSING.code: "values are missing in some of the {rows:,} rows: {columns}; drop "
    "these rows (--missing drop), or have the features encode missing values (otmoe features "
    "--missing indicator).",
    Error.NO_GRAMS.code: "site {site!r}{others} sent no Grams, and --method gram needs them from "
    "every site: ask for them (otmoe fit --grams), or use --method reduction.",
    Error.MANY_LEVELS.code: "column {column!r} has {levels:,} distinct values, and --max-levels is "
    "{most}; leave it out by listing the features with --columns, merge some of its values, or "
    "raise --max-levels.",
    Error.ONE_LEVEL.code: "column {column!r} has the value {value} throughout the sample; leave "
    "it out by listing the features with --columns.",
    Error.SAMPLE_LACKS_COLUMN.code: "column {column!r} is missing in all {rows} rows of the "
    "sample; leave it out by listing the features with --columns.",
    Error.NO_FEATURE.code: "column {column!r} holds {kind}, which cannot be a feature; convert it "
    "to numbers or text, or leave it out by listing the features with --columns.",
    Error.NO_SPREAD.code: "differences between sites cannot be estimated: {sites} sent no scatter "
    "of scores; start again from the refined model and have them answer with --scatter (or "
    "--groups), or leave them out (--exclude).",
    Error.ONE_COLUMN.code: "there is no column {column!r}, and the only one is {only!r}: "
    "columns are probably separated by another character than the one used; give the right one "
    "with --sep (by default comma, semicolon, tab and bar are recognised).",
    Error.ROWS_LEFT.code: "{dropped:,} of {total:,} rows were dropped because a value is "
    "missing{columns}, and {rows:,} are left for {experts} experts; leave these columns out by "
    "listing the features with --columns, or impute the values.",
    Warn.INDEX_LEFT_OUT.code: "column {column!r} looks like the index of a data frame and is not "
    "used as a feature; list it in --columns to use it.",
    Warn.FOUND_ONCE.code: "{agreed} of {searches} independent searches ended in this "
    "maximum{gap}: raise --starts to be more certain of it, or use fewer experts.",
    Warn.NOT_CONVERGED.code: "the fit {status}: raise --max-iter, or use fewer experts.",
    Warn.SHARDS_STOPPED.code: "the fits of {names} stopped before convergence: raise --max-iter.",
    Warn.RIDGE_MOVED.code: "the ridge has moved {count} parameter{plural} by more than {bound} "
    "standard errors ({worst} the most, by {distance:.1f}), which the intervals do not account "
    "for: use fewer experts or features, or fit in Python with a smaller ridge (alpha, "
    "expert_alpha).",
    Warn.GATE_UNDETERMINED.code: "the rows do not determine the gate of expert {expert} against "
    "expert {reference} ({terms}): either it separates them, so that its coefficients diverge "
    "until the ridge stops them, or the ridge is too strong, which a fit in Python with a smaller "
    "alpha will show.",
    Warn.SEPARATED.code: "a hyperplane separates the rows of expert {expert} by class, so only the "
    "ridge keeps its coefficients finite, above all that of {term}: interpret its predictions, not "
    "its coefficients, or use fewer experts or features.",
    Warn.TWO_VALUES.code: "the target takes two values only, and such a target is a class, which "
    "experts with a variance fit exactly: use --family classes.",
    Warn.ROUNDS_ENDED.code: "after {rounds} refine rounds the maximum has not been reached "
    "({status}): use fewer experts, leave out sites that differ from the others{names}, or use "
    "otmoe run --method em if the rows can be read from one place.",
    Warn.STEP_TAKEN_BACK.code: "the step of refine round {rounds}, the last, lowered the "
    "likelihood and was undone: allow more rounds (--refine auto, or --rounds auto).",
    Error.WEIGHT_OF_ROW.code: "the weight is negative in row {row} ({value:g}): weights count "
    "rows, so give zero or more.",
    Error.ROWS_WITHOUT_WEIGHT.code: "the weight is zero in every row: there is nothing to fit.",
    Error.FEWER_ROWS_THAN_EXPERTS.code: "there are {rows} rows for {experts} experts: give more "
    "rows (of positive weight), or use fewer experts.",
    Error.GATE_VARIES.code: "gate feature {name!r} varies within group {group}, but rows of a "
    "group share one expert: list features that are constant within groups in --gate-features, or "
    "use --gate-features intercept.",
    Error.ZERO_OF_COUNTS.code: "--zero-expert is for counts, not for {family}: use --family "
    "poisson or negative_binomial, or leave it out.",
    Error.ZERO_ALONE.code: "the zero expert is one of --experts, and there is no other: give "
    "--experts 2 or more.",
    Error.NO_COMMON_VARIANCE.code: "--common-variance asks for one variance, but {family} experts "
    "have none; leave it out.",
    Error.EM_AND_REFINE.code: "--method em already ends at the maximum: leave out --refine.",
    Error.AVERAGE_UNEQUAL.code: "site {site!r} has {experts} experts and {wanted} are wanted: "
    "parameters can be averaged only if all sites have the same number; use --method reduction.",
    Error.AVERAGE_BY_COVARIATE.code: "this method averages parameters with the same weights at "
    "every x, so --site-weight covariate does not apply: use --method reduction, or leave it out.",
    Error.NO_MIDDLE.code: "no site has {experts} experts, and the middle model is one of the local "
    "ones: choose other --experts, or use --method reduction.",
    Error.GREEDY_TOO_MANY.code: "greedy merging takes time cubic in the number of experts, and "
    "there are {experts}: use --method reduction, which has no such limit.",
    Error.NO_SKETCHES.code: "--site-weight covariate needs a sketch from every site, and {sites} "
    "sent none: ask for them (otmoe fit --sketch), or leave it out.",
    Error.KL_OF_GROUPS.code: "--method kl compares densities of single rows, but rows of a group "
    "share one expert: use --method auto, gram or reduction, and refine rounds for the exact "
    "answer.",
    Error.PERSONAL_SHARED.code: "models for single sites are not available when rows of a group "
    "share one expert: leave out --personal, or --expert-per.",
    Error.ELBOW_TOO_FEW.code: "--experts is {numbers}: an elbow needs a smaller and a larger "
    "number to compare with; give at least three numbers, or another --criterion.",
    Error.TARGET_IS_TEXT.code: "the target holds text; give numbers, or use --family classes.",
}
"""Sentences by code, with the same facts as the package's own."""


def in_shell_words(notice: Notice) -> Notice:
    """Return a notice as the shell says it."""
    return replace(notice, text=notice.in_words(SHELL))


def told(notices: Iterable[Notice]) -> list[dict[str, Any]]:
    """Return notices as --json prints them: code and text each."""
    from otmoe.text.records import notice_document

    return [notice_document(in_shell_words(notice)) for notice in notices]


def told_by_name(notices: Mapping[str, Notice]) -> dict[str, dict[str, Any]]:
    """Return notices about sites or shards as --json prints them."""
    from otmoe.text.records import notice_document

    return {name: notice_document(in_shell_words(notice)) for name, notice in notices.items()}
