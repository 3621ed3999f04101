"""The paper's study: reading its CSVs, its figures, its claims, and the pages that show them."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image
from scipy import special

from paper import claims, figures, tables, theory, traces, writing
from paper.findings import ESTIMATORS, METRICS, Findings, Place, slope
from paper.learning import learning_times
from paper.study import Part, run, wanted
from studies.rows import read
from studies.tables import console

SITES, SIZES, TRUTHS = (4, 64), (1000, 4000), 5


def study_rows(**worse):
    """Return made-up rows: errors fall as 1/N, and are larger by the factors given."""
    rows = []
    levels = 1 + np.random.default_rng(0).random(TRUTHS)
    machine = {"device": "cpu", "machine": "a machine", "python": "3", "numpy": "2"}
    same = {"rounds": "3", "site_bytes": "100", "same_optimum": "True", "other_cores_busy": "0.5"}
    errors = ("transport", "mse_total", "rpe", "mse_gate", "mse_coef")
    cases = product(("hard", "soft"), SIZES, range(TRUTHS), (1, *SITES, 16), ESTIMATORS.items())
    for kind, n, truth, M, (name, (method, refine)) in cases:
        if (name == "G") != (M == 1):
            continue
        error = levels[truth] * 1000 / n * worse.get(name, 1.0)
        where = {"kind": kind, "rows": str(n), "truth": str(truth), "sites": str(M)}
        found = {
            **dict.fromkeys(errors, str(error)),
            "below_truth": str(error / 1000),
            "ari": str(1 - error / 1000),
            "learning_seconds": str(4.0 if name == "G" else 1.0 + M / 100),
        }
        rows.append({**where, "method": method, "refine": refine, **found, **same, **machine})
    return rows


def trace_rows():
    for n in ("1000", "4000"):
        for start, values in ((traces.OURS, (2, 1)), (traces.RANDOM, (9, 3, 1, 1))):
            for i, value in enumerate(values):
                step = {"iteration": str(i), "objective": str(value)}
                yield {"rows": n, "truth": "0", "start": start} | step


def made(timing=False, **worse):
    rows = study_rows(**worse)
    return Findings(rows, rows if timing else [], list(trace_rows()), [], [])


# -- reading -------------------------------------------------------------------------------------


def test_medians_wins_and_ratios_are_those_of_the_rows():
    findings = made(R=3.0, Mid=2.0)
    place = Place("hard", 4000, 64)
    levels = {
        int(row["truth"]): float(row["rpe"])
        for row in findings.study
        if (row["kind"], row["rows"], row["method"]) == ("hard", "4000", "centralised")
    }
    assert len(levels) == TRUTHS
    assert findings.values(place, "G", "rpe") == levels
    assert_allclose(findings.median(place, "R", "rpe"), 3 * np.median(list(levels.values())))
    assert_allclose(findings.ratio(place, "R", "Mid", "rpe"), 1.5)
    for metric in METRICS:
        assert findings.wins(place, "Mid", "R", metric) == (TRUTHS, TRUTHS)
        assert findings.wins(place, "R", "Mid", metric) == (0, TRUTHS)
    assert findings.sizes() == [4000, 1000]
    assert findings.sites(1000) == [4, 16, 64]


def test_numbers_of_rows_are_compared_on_the_truths_they_share():
    findings = made()
    gone = [r for r in findings.study if not (r["rows"] == "4000" and r["truth"] in "12")]
    fewer = replace(findings, study=gone)
    few = fewer.errors("hard", 16, "G", "rpe")[1000]
    place = Place("hard", 1000, 16)
    levels = [findings.values(place, "G", "rpe")[truth] for truth in range(TRUTHS)]
    assert_allclose(few, np.median([levels[0], *levels[3:]]))
    assert few != findings.errors("hard", 16, "G", "rpe")[1000]


def test_the_slope_of_a_power_is_its_exponent():
    assert_allclose(slope({n: 7.0 * n**-1.3 for n in (10, 200, 3000)}), -1.3)


# -- figures -------------------------------------------------------------------------------------


def test_figures_are_written_and_small(tmp_path):
    paths = figures.save(made(), tmp_path)
    names = ["rows_4000", "rows_1000", "across_rows", "mm_traces", "consistency"]
    assert [path.stem for path in paths] == names
    for path in paths:
        assert path.stat().st_size < 150_000
        with Image.open(path) as image:
            assert min(image.size) > 300


def drawn_medians(ax):
    return [(line.get_gid(), line.get_ydata()[0]) for line in ax.lines if line.get_gid()]


@pytest.mark.parametrize("timing", [False, True])
def test_boxes_stand_at_the_medians(timing):
    findings = made(timing, R=1.5, W=4.0)
    axes = figures.boxes(findings, figures.over_sites(findings, 1000), "1,000 rows", "sites").axes
    for ax, metric in zip(axes, figures.PANELS, strict=True):
        expected = []
        for M in (1, 4, 16, 64):
            for name in figures.COLOURS:
                if (name == "G") == (M == 1):
                    place = Place("hard", 1000, max(M, 4))
                    values = findings.values(place, name, metric)
                    G = findings.values(place, "G", metric)
                    if metric == "rpe":
                        values = {t: 100 * (values[t] / G[t] - 1) for t in G}
                    if metric == "ari":
                        values = {t: values[t] - G[t] for t in G}
                    expected.append((name, np.median(list(values.values()))))
        drawn = drawn_medians(ax)
        assert [name for name, _ in drawn] == [name for name, _ in expected]
        assert_allclose([y for _, y in drawn], [y for _, y in expected], atol=1e-12)
    assert ("not to be quoted" in axes[-1].get_title(loc="left")) is not timing
    figures.plt.close("all")


def test_slopes_stand_in_the_legend():
    figure = figures.consistency(made(R=2.0), ["hard"])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[:2] == ["G: slope -1.00", "R: slope -1.00"]
    below, above = (figure.axes[0].lines[i].get_ydata() for i in range(2))
    assert_allclose(np.divide(above, below), 2)
    figures.plt.close("all")


# -- claims --------------------------------------------------------------------------------------


def verdicts(findings):
    return {claim: holds for claim, _, holds, _ in claims.claims(findings)}


def test_claims_hold_where_the_rows_say_so():
    good = verdicts(made(True, Mid=2.0, W=2.0))
    comparable = "At N = 1,000,000 R is comparable to G with 4 or 16 machines."
    distance = "In transportation distance R is as close to the truth as G even with 128 machines."
    rival = "and below those of the weighted average."
    assert good[comparable] == good[distance] == "holds"
    assert good[rival] == "holds; by medians: holds"
    bad = verdicts(made(True, R=3.0, Mid=2.0, W=2.0))
    assert bad[comparable] == "holds in nats below truth and ARI; not in T_c, MSE and RPE"
    assert bad[distance] == "does not hold"
    assert bad[rival] == "does not hold; by medians: does not hold"


def test_learning_times_are_quoted_only_from_a_quiet_machine():
    assert tables.learning_times(made()) == []
    assert writing.marks(made())["times"] == [writing.NOT_QUIET]
    assert not any("learns faster" in claim for claim in verdicts(made()))
    quiet = made(timing=True)
    (first, _) = tables.learning_times(quiet)
    assert [cells[4] for cells in first[2] if cells[1] == "reduction (R)"] == ["3.8", "3.4", "2.4"]
    (faster,) = {v for claim, v in verdicts(quiet).items() if "learns faster" in claim}
    assert faster == "faster with 4, 16 and 64 sites, in other proportions"


def test_a_rise_of_the_objective_is_noticed():
    findings = made()
    (claim,) = [text for text, *_ in claims.claims(findings) if "monotonically" in text]
    assert verdicts(findings)[claim].startswith("decreases: holds")
    findings.traces[-1]["objective"] = "1.0001"
    assert verdicts(findings)[claim].startswith("decreases: does not hold")


# -- theory --------------------------------------------------------------------------------------


def test_an_average_of_gates_is_bent():
    x = np.linspace(-2, 2, 401)
    odds = special.logit((special.expit(4 * x + 2) + special.expit(4 * x - 2)) / 2)
    line = np.polyval(np.polyfit(x, odds, 1), x)
    assert_allclose(theory.bent_gate(), np.abs(odds - line).max())
    assert theory.bent_gate() > 0.5


def test_half_way_between_two_minima_is_none():
    assert_allclose(theory.between(), (0, 0, 2))  # KL(N(0, 1) || N(2, 1)) is 2² / 2
    y = np.random.default_rng(0).normal(size=200_000)
    ratio = np.log(2) - np.log1p(np.exp(4 * y - 8))  # of N(0, 1) to the mean of both densities
    assert_allclose(theory.between_densities(), ratio.mean(), atol=5 * ratio.std() / 200_000**0.5)


def test_the_objective_does_not_see_the_gate():
    erased, lost = theory.without_gate()
    assert erased == 0
    assert lost > 1


def test_the_table_implies_a_mean_above_the_root_mean_square():
    found = theory.heart_rates()
    assert_allclose(found["G"], (8.58 / 0.0103**0.5, 8.58 / 0.0901))
    assert all(mean > rms for rms, mean in found.values())
    assert_allclose(list(theory.shares_of_tests().values()), [1 / 3, 1 / 5, 1 / 3])


# -- running -------------------------------------------------------------------------------------


def test_learning_time_is_that_of_shards_side_by_side():
    fit = SimpleNamespace(seconds=np.array([1.0, 4.0, 3.0]), timings={"search": 2.0})
    assert learning_times(fit) == (4.0, 2.0)


def test_a_small_study_runs_resumes_and_is_shown(tmp_path):
    path = tmp_path / "study.csv"
    part = Part("hard", 4000, 1, (2, 4), experts=2, features=3, test=1000)
    run([part], path, None, 1, "cpu", console(), ThreadPoolExecutor)
    findings = Findings.read(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    keys = ("kind", "rows", "truth", "sites", "method", "refine")
    assert {tuple(row[k] for k in keys) for row in findings.study} == wanted(part, 0)
    assert all(row["machine"] and row["numpy"] for row in findings.study)
    auto, G = (
        findings.median(Place("hard", 4000, 2), name, "log_likelihood")
        for name in ("gram + auto", "G")
    )
    assert_allclose(auto, G, rtol=1e-3)
    (table,) = [tables.medians(findings, "hard", n) for n in findings.sizes()]
    assert len(table[2]) == 1 + 2 * (len(ESTIMATORS) - 1)
    path.write_text("".join(lines[:-3]))
    run([part], path, None, 1, "cpu", console(), ThreadPoolExecutor)
    assert len(path.read_text().splitlines()) == len(lines)


def test_traces_fall_and_are_not_done_twice(tmp_path):
    path, sizes = tmp_path / "mm_traces.csv", {"sites": 2, "features": 3}
    traces.run(path, (4000,), 1, **sizes)
    rows = read(path)
    for start in (traces.OURS, traces.RANDOM):
        objective = [float(row["objective"]) for row in rows if row["start"] == start]
        assert np.all(np.diff(objective) <= 1e-9 * objective[0])
    before = path.read_bytes()
    traces.run(path, (4000,), 1, **sizes)
    assert path.read_bytes() == before


# -- the pages -----------------------------------------------------------------------------------


def test_the_pages_show_the_tracked_results(tmp_path):
    for name in ("paper.md", "differences.md"):
        shutil.copy(writing.DOCS / name, tmp_path)
    writing.write_pages(Findings.read(), tmp_path)
    for name in ("paper.md", "differences.md"):
        assert (tmp_path / name).read_text() == (writing.DOCS / name).read_text()


def test_the_page_shows_every_figure():
    text = (writing.DOCS / "paper.md").read_text()
    for path in figures.IMAGES.iterdir():
        assert f"(images/paper/{path.name})" in text
        assert path.stat().st_size < 150_000


def test_no_row_of_the_study_is_there_twice():
    for name in ("study", "learning_time"):
        path = writing.DOCS.parent / "paper" / "results" / f"{name}.csv"
        if not path.exists():
            continue
        names = ("kind", "rows", "truth", "sites", "method", "refine")
        keys = [tuple(row[name] for name in names) for row in read(path)]
        assert len(keys) == len(set(keys))
