"""The fits of flexmix's four vignettes, written as models of otmoe: both log-likelihoods.

flexmix itself fits them in R (Debian: r-cran-flexmix), the best of five or ten starts, and hands
its tables over. Its Gaussian variances divide by rows less coefficients, so that its Gaussian
log-likelihoods are a little below the maximum.
"""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from otmoe import MoERegressor
from studies.rows import Row

Frame = Any
Made = tuple[int, Frame, Any, dict[str, Any], dict[str, Any]]
"""Experts, X, y, options of the estimator, and what `fit` takes beside X and y."""

_R = Path(__file__).with_suffix(".R")


def _npreg(t: Frame) -> Frame:
    return pd.DataFrame({"x": t.x, "x2": t.x**2, "yb": t.yb.astype(float)})


def _lines(response: str, **options: Any) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        groups = {"groups": t.id2} if options.get("expert_per") else {}
        return 2, _npreg(t)[["x", "x2"]], t[response], {"gate_features": _NONE, **options}, groups

    return made


def _both(own: Any = ("x", "x2"), gate: Any = "intercept") -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        features = {"y0": list(own), "y1": ["x"]}
        options = {"family": ["gaussian", "poisson"], "expert_features": features}
        return 2, _npreg(t), t[["yn", "yp"]], {**options, "gate_features": gate}, {}

    return made


def _counts(t: Frame) -> Made:
    return 2, t[["x"]], t.yp, {"family": "poisson", "gate_features": _NONE}, {}


def _clouds(t: Frame) -> Made:
    options = {"family": ["gaussian", "gaussian"], "expert_features": _NONE}
    X = pd.DataFrame({"row": np.arange(len(t), dtype=float)})
    return 4, X, t[["V1", "V2"]], {**options, "gate_features": _NONE}, {}


def _arms(
    n_experts: int, *, of: tuple[str, str, str, str], group: str, **options: Any
) -> Callable[[Frame], Made]:
    successes, total, arm, control = of

    def made(t: Frame) -> Made:
        X = pd.DataFrame({"treated": (t[arm] != control).astype(float)})
        y = np.column_stack([t[successes], t[total] - t[successes]]).astype(float)
        chosen = {"family": "binomial", "gate_features": _NONE, "expert_per": "group", **options}
        shared = chosen["expert_per"] == "group"
        return n_experts, X, y, chosen, {"groups": t[group].astype(str)} if shared else {}

    return made


def _beta(n_experts: int, **options: Any) -> Callable[[Frame], Made]:
    of = ("Deaths", "Total", "Treatment", "Control")
    return _arms(n_experts, of=of, group="Center", **options)


def _mehta(n_experts: int, without: str = "", **options: Any) -> Callable[[Frame], Made]:
    made = _arms(n_experts, of=("Response", "Total", "Drug", "Control"), group="Site", **options)
    return lambda t: made(t[t.Site.astype(str) != without])


def _articles(features: list[str], **options: Any) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        X = pd.DataFrame(
            {
                "fem": (t.fem == "Women").astype(float),
                "mar": (t.mar == "Married").astype(float),
                **{name: t[name].astype(float) for name in ("kid5", "phd", "ment")},
            }
        )
        chosen = {"family": "poisson", "gate_features": _NONE, "expert_features": features}
        return 2, X, t.art, {**chosen, **options}, {}

    return made


def _teeth(t: Frame) -> Made:
    dummies = pd.get_dummies(t[["Gender", "Ethnic", "Treatment"]], drop_first=True, dtype=float)
    X = dummies.assign(begin=np.log(t.Begin + 0.5))
    return 2, X, t.End, {"family": "poisson", "zero_expert": True, "gate_features": _NONE}, {}


def _artificial(**options: Any) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        X = t[["x1", "x2", "w"]].astype(float)
        chosen = {"gate_features": ["w"], "expert_features": ["x1", "x2"]}
        return 3, X, t.y, {**chosen, **options}, {}

    return made


def _beetles(n_experts: int, wang: bool, without: int | None = None) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        t = t if without is None else t.drop(index=without - 1)
        species = pd.get_dummies(t.Species, dtype=float)
        gate = pd.get_dummies(t.Replicate.astype(str), prefix="replicate", dtype=float).iloc[:, 1:]
        species = species[["Confusum"]] if wang else species.iloc[:, 1:]
        gate = gate[["replicate_3"]] if wang else gate
        y = np.column_stack([t.Remaining, t.Total - t.Remaining]).astype(float)
        options = {
            "family": "binomial",
            "gate_features": list(gate),
            "expert_features": list(species),
            "common": list(species),
        }
        return n_experts, species.join(gate), y, options, {}

    return made


def _dose(t: Frame) -> Made:
    X = pd.DataFrame({"dose": np.log(t.Dose)})
    options = {"family": "binomial", "gate_features": _NONE, "common": ["dose"]}
    return 2, X, t.Dead.astype(float), options, {}


def _faults(**options: Any) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        X = pd.DataFrame({"length": np.log(t.Length)})
        chosen = {"family": "poisson", "gate_features": _NONE, "common": ["length"]}
        return 2, X, t.Faults, {**chosen, **options}, {}

    return made


def _patents(**options: Any) -> Callable[[Frame], Made]:
    chosen = {"family": "poisson", "gate_features": ["RDS"], "expert_features": ["lgRD"]}
    return lambda t: (3, t[["lgRD", "RDS"]], t.Patents, {**chosen, **options}, {})


def _seizures(since: float, jump: bool = True) -> Callable[[Frame], Made]:
    def made(t: Frame) -> Made:
        treated, day = (t.Treatment == "Yes").astype(float), np.log(t.Day / since)
        X = pd.DataFrame({"treated": treated, "day": day, "both": treated * day})
        X = X if jump else X[["day", "both"]]
        options = {"family": "poisson", "gate_features": _NONE}
        return 2, X, t.Seizures, options, {"offset": np.log(t.Hours)}

    return made


def _salmonella(t: Frame) -> Made:
    X = pd.DataFrame({"x": t.x.astype(float), "log": np.log(t.x + 10)})
    options = {"family": "poisson", "gate_features": _NONE, "common": ["x", "log"]}
    return 2, X, t.y, options, {}


_NONE = "intercept"
_RARE = ["kid5", "mar", "ment"]
_LINE = (["x", "x2"], ["-intercept", "x"])  # a parabola, and a line through the origin
_NESTED = {"one": ["treated"], "other": ["treated"], "third": _NONE}

# Name, table, what it is, and how it is written; None where it cannot be.
FITS: tuple[tuple[str, str, str, Callable[[Frame], Made] | None], ...] = (
    ("npreg_lines", "NPreg", "two parabolas", _lines("yn")),
    ("npreg_counts", "NPreg", "two Poisson regressions", _counts),
    ("npreg_both", "NPreg", "two responses with features of their own", _both()),
    ("npreg_pairs", "NPreg", "pairs of rows share their expert", _lines("yn", expert_per="group")),
    ("npreg_hard", "NPreg", "EM with hard assignments", None),
    ("npreg_minprior", "NPreg", "four experts, small ones removed: two", _lines("yp")),
    ("npreg_select", "NPreg", "the number of experts by BIC: two", _lines("yp")),
    ("nclus_diagonal", "Nclus", "two responses, four clusters", _clouds),
    ("nclus_full", "Nclus", "the same with correlated responses", None),
    ("npreg_both_nested", "NPreg", "two responses, one of them nested", _both(_LINE)),
    ("npreg_both_gate", "NPreg", "two responses with a gate", _both(gate=["yb"])),
    (
        "npreg_both_own_gate",
        "NPreg",
        "the same with a gate of the user's own",
        _both(gate=["yb"]),
    ),
    ("simulated_lines", "two_lines", "two lines", lambda t: (2, t[["x"]], t.y, _FLAT, {})),
    ("beta_glm", "betablocker", "one binomial regression", _beta(1, expert_per="row")),
    ("beta_fixed_2", "betablocker", "by centre, common effect", _beta(2, common=["treated"])),
    ("beta_fixed_3", "betablocker", "by centre, common effect", _beta(3, common=["treated"])),
    ("beta_fixed_4", "betablocker", "by centre, common effect", _beta(4, common=["treated"])),
    ("beta_free", "betablocker", "by centre", _beta(3)),
    (
        "beta_nested",
        "betablocker",
        "by centre, effect common to two of three",
        _beta(3, expert_features=_NESTED, common=["treated"]),
    ),
    ("articles", "bioChemists", "K by BIC: two", _articles(["fem", "phd", *_RARE])),
    (
        "articles_common",
        "bioChemists",
        "three common coefficients",
        _articles(["fem", "phd", *_RARE], common=_RARE),
    ),
    ("articles_no_phd", "bioChemists", "without phd", _articles(["fem", *_RARE], common=_RARE)),
    (
        "articles_gate",
        "bioChemists",
        "sex in the gate",
        _articles(_RARE, common=_RARE, gate_features=["fem"]),
    ),
    (
        "articles_fem_common",
        "bioChemists",
        "intercepts alone differ",
        _articles(["kid5", "ment", "fem"], common=["kid5", "ment", "fem"]),
    ),
    ("teeth_zero", "dmft", "zero inflation", _teeth),
    ("nregfix", "NregFix", "a gate of its own", _artificial()),
    (
        "nregfix_nested",
        "NregFix",
        "common and nested coefficients, common variance",
        _artificial(
            expert_features={"flat": ["x2"], "one": ["x1", "x2"], "other": ["x1", "x2"]},
            common=["x1", "x2"],
            common_variance=True,
        ),
    ),
    ("mehta_fixed", "Mehta", "by site, common effect", _mehta(3, common=["treated"])),
    ("mehta_free", "Mehta", "by site", _mehta(3)),
    ("mehta_without_15", "Mehta", "without a site", _mehta(2, "15", common=["treated"])),
    ("tribolium_2", "tribolium", "common effect, gate of its own", _beetles(2, wang=False)),
    ("tribolium_3", "tribolium", "common effect, gate of its own", _beetles(3, wang=False)),
    ("tribolium_wang", "tribolium", "the model of Wang and Puterman", _beetles(2, wang=True)),
    ("tribolium_wang_less", "tribolium", "without a row", _beetles(2, wang=True, without=7)),
    ("trypanosome", "trypanosome", "common effect", _dose),
    ("faults", "fabricfault", "common effect", _faults()),
    (
        "faults_nested",
        "fabricfault",
        "an expert without intercept",
        _faults(expert_features=[["-intercept", "length"], ["length"]]),
    ),
    ("patents", "patent", "a gate of its own", _patents()),
    ("patents_common", "patent", "common effect", _patents(common=["lgRD"])),
    ("seizures", "seizure", "offset and products", _seizures(1.0)),
    ("seizures_27", "seizure", "the same in other units", _seizures(27.0)),
    ("seizures_no_jump", "seizure", "without an effect", _seizures(27.0, jump=False)),
    ("salmonella", "salmonellaTA98", "common effects", _salmonella),
)
_FLAT = {"gate_features": _NONE}


@cache
def _theirs() -> tuple[Path, dict[str, tuple[float, float]]]:
    """Return the folder of the tables, and log-likelihood and parameters by fit, from R."""
    folder = Path(mkdtemp(prefix="flexmix-"))
    done = subprocess.run(
        ["Rscript", str(_R), str(folder)], check=True, capture_output=True, text=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    return folder, {row[0]: (float(row[1]), float(row[2])) for row in rows if row[1] != "NA"}


def cases(settings: Settings) -> list[Row]:
    if shutil.which("Rscript") is None:
        return []
    return [{"fit": name} for name, *_ in FITS]


def measure(case: Row, settings: Settings) -> Row:
    _, table, what, write = next(fit for fit in FITS if fit[0] == case["fit"])
    folder, theirs = _theirs()
    height, parameters = theirs.get(str(case["fit"]), (np.nan, ""))
    found: Row = {"table": table, "what": what, "theirs": _digits(height), "free": parameters}
    if write is None:
        return {**found, "expressed": 0, "ours": "", "our_free": "", "above": ""}
    n_experts, X, y, options, beside = write(pd.read_csv(folder / f"{table}.csv"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small tables have much to warn of
        est = MoERegressor(n_experts, alpha=0.0, expert_alpha=0.0, random_state=0, **options)
        est.fit(X, np.asarray(y, dtype=float), **beside)
    return {
        **found,
        "expressed": 1,
        "ours": _digits(est.log_likelihood_),
        "our_free": est.fit_.rank,
        "above": est.log_likelihood_ - height,
    }


def _digits(height: float) -> str:
    """Return a log-likelihood to the digits that count."""
    return "" if np.isnan(height) else f"{height:.4f}"


BENCHMARK = Benchmark(
    "flexmix",
    "The fits of flexmix's vignettes",
    cases,
    measure,
    (
        Column("fit", "fit"),
        Column("table", "table"),
        Column("what", "model"),
        Column("theirs", "flexmix", "{:.4f}"),
        Column("free", "parameters", "{:.0f}"),
        Column("ours", "otmoe", "{:.4f}"),
        Column("our_free", "parameters", "{:.0f}"),
        Column("above", "nats above", "{:+.4f}"),
    ),
    (Requirement("above", "nats above flexmix", at_least=-1e-3),),
)
