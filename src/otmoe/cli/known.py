"""Choices and defaults that the help shows; a test compares them with the package's own.

They are written here a second time so that help and usage errors need no numerical library.
"""

from __future__ import annotations

import sys

FAMILIES = (
    "gaussian",
    "binomial",
    "poisson",
    "negative_binomial",
    "gamma",
    "student_t",
    "classes",
)
DEGREES = range(3, 32, 2)  # that "student_t" may end in
METHODS = (
    "auto",
    "reduction",
    "kl",
    "gram",
    "middle",
    "weighted_average",
    "aligned_average",
    "greedy",
    "median",
    "trimmed",
    "geometric_median",
    "krum",
)
RESTRICTIONS = ("auto", "gate", "intercepts")
CRITERIA = ("bic", "icl", "cv", "expected_bic", "elbow")
N_SUPPORT = 4000
MAX_LEVELS = 50
MAX_ITER = 300
RULES = (
    "rows",
    "parameters",
    "expert_rows",
    "cells",
    "leverage",
    "certainty",
    "sketch",
    "share",
    "names",
    "columns",
    "question",
    "scatter",
    "ledger",
)
POLICY = "policy.json"
LEDGER = ".otmoe-ledger.json"
MOST_SHARED = 10_000
CLASSES = "classes"


def families() -> tuple[str, ...]:
    """Return what --family may be; families may have been added while the command is there."""
    target = sys.modules.get("otmoe.model.target")
    return FAMILIES if target is None else tuple(target.regression_families())
