"""The report: its numbers are the aggregation's, and whatever sites are called stays text."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from commandline import fails, fine, told
from jsonschema import Draft202012Validator
from numpy.testing import assert_allclose, assert_array_equal
from oracles import made_up_grams, random_model
from refusals import put, refused

from otmoe import (
    DistributedMoERegressor,
    FeatureSpec,
    LocalModel,
    MoERegressor,
    Sketch,
    aggregate,
    load_model,
    report,
    save_model,
    simulate,
)
from otmoe.aggregation.robust import ROBUST
from otmoe.data.columns import Column
from otmoe.documents.json_schema import json_schema
from otmoe.likelihood.fit import em
from otmoe.reporting.report import SCRIPTS
from otmoe.text.errors import InferenceError
from otmoe.text.notices import Notice, OtmoeWarning
from otmoe.text.sentences import Finding

HOSTILE = "</script><img src=x onerror=alert(1)>"
ODD = Notice("said", "it is odd")
SUPPORT = np.random.default_rng(0).normal(size=(60, 2))


class Reader(HTMLParser):
    """Keep the elements of a page, and refuse one that is not closed."""

    VOID = {"meta", "br", "img", "input"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text = [], [], {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        place = self.open[-1] if self.open else None
        self.text[place] = self.text.get(place, "") + data


def data_of(page):
    return json.loads(Reader(page).text["script", "data"])


def messages(family="gaussian", n=4, names="site {}", features=("age", "dose")):
    """Return messages of sites whose models are alike."""
    rng = np.random.default_rng(1)
    base = random_model(rng, 2, 2, family=family)
    labels = {"logistic": ["no", "yes"], "multinomial": ["no", "yes", "perhaps"]}.get(family)
    labels = None if labels is None else np.array(labels)
    base = replace(base, feature_names=features, classes=labels)
    size = base.n_parameters
    return [
        LocalModel(
            names.format(m),
            base.with_vector(base.to_vector() + 0.02 * rng.normal(size=size)),
            100.0 + m,
            -150.0 - m,
            m != 1,
            "converged after 7 iterations" if m != 1 else "stopped",
            ("few rows.",) if m == 2 else (),
            versions={"otmoe": "1", "R": "4.2"} if m == 0 else {"otmoe": "1"},
        )
        for m in range(n)
    ]


def merged(family="gaussian", **changes):
    made = {key: changes.pop(key) for key in ("n", "names", "features") if key in changes}
    return aggregate(messages(family, **made), SUPPORT, **changes)


@pytest.fixture(scope="module")
def refined():
    data = simulate(1200, 2, 2, softness=0.7, random_state=0)
    est = DistributedMoERegressor(2, n_shards=3, refine="auto", random_state=0)
    return est.fit(data.X, data.y).aggregation_


# -- numbers ---------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_aggregation(family):
    result = merged(family)
    found = data_of(report(result))
    part, model = found["aggregation"], found["model"]
    for shown, record, message in zip(part["sites"], result.sites, result.messages, strict=True):
        for name in ("site", "n_samples", "weight", "cost", "disagreement", "lost"):
            assert shown[name] == getattr(record, name)
        assert_array_equal(shown["mass"], record.mass)
        assert shown["log_likelihood"] == message.log_likelihood
        assert shown["converged"] == message.converged
        assert sum(shown["sent"].values()) == len(message.to_json().encode())
    assert part["cost"] == result.cost
    assert np.isclose(part["lost"], result.lost, rtol=1e-12)
    assert part["candidates"] == [vars(candidate) for candidate in result.candidates]
    assert [c["lost"] for c in part["candidates"]] == sorted(c["lost"] for c in part["candidates"])
    assert part["alternatives"] == [vars(alternative) for alternative in result.alternatives]
    assert [a["method"] for a in part["alternatives"][1:]] == list(ROBUST)
    assert part["trace"] == result.trace.tolist()
    assert np.allclose(part["mass"], result.mass, rtol=1e-12)
    assert_array_equal(model["gate"], result.model.gate.coef)
    values = [row["estimate"] for row in model["estimates"]]
    vector = result.model.to_vector()
    if result.model.experts.dispersion is not None:
        vector = np.append(vector[:-2], result.model.experts.dispersion)
    assert np.allclose(values, vector, rtol=1e-15)
    with pytest.raises(InferenceError) as error:
        result.inference()
    assert model["no_intervals"] == str(error.value) and not model["has_intervals"]
    assert_array_equal(part["covariates"]["mean"], SUPPORT.mean(axis=0))
    low, high = np.quantile(SUPPORT, [0.025, 0.975], axis=0)
    assert_array_equal(part["covariates"]["low"], low)
    assert_array_equal(part["covariates"]["high"], high)


def test_intervals_are_those_of_the_inference_also_by_way_of_a_file(refined, tmp_path):
    found = data_of(report(refined))
    rows = refined.inference().table()
    assert found["model"]["has_intervals"] and len(rows) == len(found["model"]["estimates"])
    for shown, row in zip(found["model"]["estimates"], rows, strict=True):
        assert (shown["block"], shown["expert"], shown["term"]) == (row.block, row.expert, row.term)
        expected = (row.estimate, row.se, row.low, row.high)
        values = [shown[k] for k in ("estimate", "se", "low", "high")]
        assert np.allclose(values, expected, rtol=1e-12)
    state = refined.refinement
    part = found["aggregation"]["refinement"]
    assert part["trace"] == list(state.trace) and part["rounds"] == state.rounds
    assert part["log_likelihood"] == state.best.information.log_likelihood
    refined.save(tmp_path / "model.json")
    schema = Draft202012Validator(json_schema("model"))
    schema.validate(json.loads((tmp_path / "model.json").read_text()))
    assert report(tmp_path / "model.json", title="T") == report(refined, title="T")


def test_a_file_gives_the_page_of_the_aggregation(family, tmp_path):
    result = merged(family)
    result.save(tmp_path / "model.json", about={"made by": "Åsa"})
    assert_array_equal(load_model(tmp_path / "model.json").to_vector(), result.model.to_vector())
    page = report(result, title="T", about={"made by": "Åsa"})
    facts = {"rows": 8000, "log-likelihood": -15711.314716899484}
    shown = data_of(report(result, about=facts))["about"]
    assert shown == {"rows": "8000", "log-likelihood": "-15711.315"}
    path = report(tmp_path / "model.json", tmp_path / "page.html", title="T")
    assert path == tmp_path / "page.html" and path.read_text() == page
    schema = Draft202012Validator(json_schema("model"))
    document = json.loads((tmp_path / "model.json").read_text())
    schema.validate(document)
    assert not schema.is_valid(put(document, "aggregation.sites.0.weight", 2))


def test_units_are_those_of_the_columns(tmp_path):
    spec = FeatureSpec(
        (Column("age", center=40.0, scale=10.0), Column("sex", "category", ("f", "m")))
    )
    sent = [
        replace(
            message, features=spec, model=replace(message.model, feature_names=spec.feature_names)
        )
        for message in messages()
    ]
    result = aggregate(sent, SUPPORT)
    assert data_of(report(result))["model"]["units"] == [[40, 10], [0, 1]]
    result.save(tmp_path / "model.json")
    assert report(tmp_path / "model.json", title="T") == report(result, title="T")
    assert data_of(report(merged()))["model"]["units"] is None


def test_curves_and_products_move_with_their_numbers(rng):
    n = 600
    rows = {"x": rng.uniform(0, 6, n), "z": rng.normal(size=n)}
    spec = FeatureSpec.from_sample(rows, splines={"x": 3}, interactions=[("x", "z")], center=True)
    X = spec.encode(rows)
    y = np.where(rows["z"] > 0, np.sin(rows["x"]), 3.0) + rng.normal(0, 0.2, n)
    fits = [em(X[part], y[part], 2, random_state=0) for part in (slice(0, 300), slice(300, n))]
    messages = [LocalModel.from_fit(fit, f"site {i}", features=spec) for i, fit in enumerate(fits)]
    page = data_of(report(aggregate(messages, X)))
    shown = page["model"]
    assert shown["n_base"] == 2 and len(shown["units"]) == 5
    (curve,) = page["effects"]["curves"]  # without a band: merged models have no standard errors
    assert curve["column"] == "x" and {v for one in curve["lines"] for v in one["low"]} <= {None, 0}
    bent = {e["term"] for e in shown["estimates"] if e.get("curve")}
    assert bent == {"x", "spline(x).1", "spline(x).2"}
    rows_shown = {term for block in page["matrix"]["blocks"] for term in block["terms"]}
    assert "spline(x)" in rows_shown and not bent & rows_shown
    assert bent <= {line[2] for line in page["matrix"]["csv"]}
    found = shown["followers"]["0"]
    x = np.array(found["values"]) * spec.columns[0].scale + spec.columns[0].center
    assert_allclose(found["others"]["3"], spec.terms[0].basis(x)[:, 1], atol=1e-9)
    assert sorted(shown["followers"]["1"]["others"]) == ["4"]


def test_levels_of_a_category_are_found_among_the_terms():
    spec = FeatureSpec(
        (
            Column("sex", "category", ("f", "m")),  # one coefficient: nothing to keep together
            Column("wind", "category", ("N", "E", "S"), reference="E"),
            Column("age"),
            Column("day", "category", ("1", "2", "3", "4")),
        )
    )
    model = random_model(np.random.default_rng(0), 2, len(spec.feature_names))
    model = replace(model, feature_names=spec.feature_names)
    sent = [
        LocalModel(f"site {m}", model, 100.0, -200.0, True, "done", features=spec) for m in range(3)
    ]
    support = np.random.default_rng(1).normal(size=(100, len(spec.feature_names)))
    found = data_of(report(aggregate(sent, support)))["model"]
    wind, day = found["categories"]
    assert (wind["name"], wind["reference"], day["reference"]) == ("wind", "E", "1")
    for category in (wind, day):
        first, levels = category["first"], category["levels"]
        terms = found["terms"][first : first + len(levels)]
        assert terms == [f"{category['name']}={level}" for level in levels]
    assert data_of(report(merged()))["model"]["categories"] == []


def test_products_move_with_the_levels_of_a_category(rng):
    n = 600
    rows = {"x": rng.normal(1, 1, n), "wind": np.array(["N", "E", "S"])[rng.integers(3, size=n)]}
    spec = FeatureSpec.from_sample(rows, interactions=[("x", "wind")])
    X = spec.encode(rows)
    fits = [em(X[m::2], rng.normal(size=n // 2), 1, random_state=0) for m in range(2)]
    sent = [LocalModel.from_fit(fit, f"site {m}", features=spec) for m, fit in enumerate(fits)]
    result = aggregate(sent, X)
    (wind,) = data_of(report(result))["model"]["categories"]
    levels = [wind["reference"], *wind["levels"]]
    at = spec.encode({"x": np.full(3, result.covariates.mean[0]), "wind": levels})
    for j, values in wind["others"].items():
        assert_allclose(values, at[:, int(j)], atol=1e-9)
    assert len(wind["others"]) == 2


def test_the_parts_of_a_message_add_up():
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2)
    grams, sketch = made_up_grams(model, 300.0), Sketch.fit(SUPPORT)
    for extra in ({}, {"grams": grams}, {"sketch": sketch}, {"support": SUPPORT[:7]}):
        sent = LocalModel("Åland", model, 300.0, -1.0, True, "done", **extra)
        assert sum(sent.sizes.values()) == len(sent.to_json().encode())
        without = replace(sent, **dict.fromkeys(extra))
        gone = len(sent.to_json().encode()) - len(without.to_json().encode())
        assert sum(sent.sizes[name] for name in extra) == gone


# -- what to look at -------------------------------------------------------------------------------


def checks(result):
    return {(c["level"], c["code"], *c["sites"]) for c in data_of(report(result))["checks"]}


def test_the_page_names_what_to_look_at():
    result = merged(n=6)
    assert ("look", "fits_stopped", "site 1") in checks(result)
    assert not any(level == "bad" for level, *_ in checks(result))
    odd = replace(result.sites[3], flagged=(ODD,))
    flagged = replace(result, sites=(*result.sites[:3], odd, *result.sites[4:]))
    assert ("bad", "sites_stand_out", "site 3") in checks(flagged)
    assert ("look", "left_out", "Brest") in checks(replace(result, left_out={"Brest": ODD}))
    assert ("bad", "merging_stopped") in checks(replace(result, converged=False))
    heavy = aggregate(messages(n=4), SUPPORT, site_weight=[0.7, 0.1, 0.1, 0.1])
    assert ("look", "one_site_dominates", "site 0") in checks(heavy)


def test_sites_that_are_better_off_alone_are_named(tmp_path):
    result = merged(n=4)
    assert ("good", "no_own_model_better") in checks(result)
    text = {c["code"]: c["text"] for c in data_of(report(result))["checks"]}
    assert f"{result.lost:.2g} nats per row" in text["no_own_model_better"]
    first = result.messages[0].model
    sent = list(result.messages)
    for m in (1, 3):  # with the sign of every effect turned, and rows to be sure of it
        turned = replace(first, experts=replace(first.experts, coef=-3 * first.experts.coef))
        sent[m] = replace(sent[m], model=turned, n_samples=5000.0 + m)
    with pytest.warns(OtmoeWarning):
        differ = aggregate(sent, SUPPORT, 1)
    (warning,) = [w for w in differ.warnings if w.code == "sites_differ"]
    differ.save(tmp_path / "model.json")
    for page in (report(differ), report(tmp_path / "model.json")):
        (check,) = [c for c in data_of(page)["checks"] if c["code"] == "own_models_better"]
        assert check["level"] == "look" and check["sites"] == list(warning.sites)
        assert all(site in check["text"] for site in warning.sites)
    assert ("good", "no_own_model_better") not in checks(differ)


def test_a_file_that_does_not_say_what_is_lost_has_its_page(tmp_path):
    path = tmp_path / "model.json"
    merged().save(path)
    document = json.loads(path.read_text())
    del document["aggregation"]["candidates"]
    for site in document["aggregation"]["sites"]:
        del site["lost"]
    path.write_text(json.dumps(document))
    found = data_of(report(path))
    assert found["aggregation"]["lost"] is None and found["aggregation"]["candidates"] == []
    assert not {"own_models_better", "no_own_model_better"} & {c["code"] for c in found["checks"]}
    assert all(site["lost"] is None for site in found["aggregation"]["sites"])


def test_an_expert_that_rests_on_one_site_is_named():
    result = merged(n=4)
    masses = [[0.1, 0.9] if m == 2 else [1.0, 0] for m in range(4)]
    sites = [
        replace(site, mass=np.array([mass, [0, 0]]))
        for site, mass in zip(result.sites, masses, strict=True)
    ]
    found = data_of(report(replace(result, sites=tuple(sites))))["checks"]
    expected = Finding.EXPERT_OF_ONE_SITE(name="site 2", share=0.8, experts="expert 1")
    assert str(expected) in [check["text"] for check in found]


def test_a_site_without_weight_has_no_flow():
    result = aggregate(messages(), SUPPORT, site_weight=[1, 1, 0, 1])
    found = data_of(report(result))["aggregation"]
    assert found["sites"][2]["mass"] is None and found["sites"][2]["cost"] is None
    assert np.isclose(sum(found["mass"]), 1)


# -- the page --------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_asks_for_nothing():
    page = report(merged())
    tags = Reader(page).tags
    assert ("main", ()) in tags and sum(tag == "script" for tag, _ in tags) == 2
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in tags}
    assert not {"src", "href"} & {name for _, names in tags for name in names}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp|WebSocket|innerHTML|eval\(", page)
    assert set(re.findall(r"\w+://[\w./]*", page)) == {"http://www.w3.org/2000/svg"}  # a name
    script = Reader(page).text["script", None]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_every_file_of_the_page_is_used():
    found = {path.name for path in files("otmoe.reporting").joinpath("page").iterdir()}
    assert found == {"page.html", "style.css", *SCRIPTS}


def test_names_stay_text():
    plain = report(merged(), title="T")
    labels = np.array([f"<b>{HOSTILE}", "{{SCRIPT}}"])
    said = {"status": HOSTILE, "warnings": (HOSTILE,), "versions": {HOSTILE: HOSTILE}}
    sent = [
        replace(m, model=replace(m.model, classes=labels), **said)
        for m in messages("logistic", names=HOSTILE + " {}", features=(HOSTILE, "{{DATA}}"))
    ]
    result = replace(aggregate(sent, SUPPORT), left_out={HOSTILE: Notice("said", "]]>\u2028")})
    page = report(result, title=HOSTILE, about={HOSTILE: "<!--"})
    assert Reader(page).tags == Reader(plain).tags
    assert "<img" not in page
    found = data_of(page)
    assert found["aggregation"]["sites"][0]["site"] == HOSTILE + " 0"
    assert found["model"]["terms"] == ["intercept", HOSTILE, "{{DATA}}"]
    assert found["aggregation"]["left_out"] == {HOSTILE: "]]>?"}  # one that ends a line
    assert found["about"] == {HOSTILE: "<!--"} and found["title"] == HOSTILE


def many(n):
    """Return an aggregation of many sites, made of one of few."""
    result = merged(n=4)
    sites = [replace(result.sites[m % 4], site=f"site {m}", weight=1 / n) for m in range(n)]
    sent = [replace(result.messages[m % 4], site=f"site {m}") for m in range(n)]
    return replace(result, sites=tuple(sites), messages=tuple(sent))


def test_a_thousand_sites_are_no_large_page(tmp_path):
    result = many(1000)
    page = report(result)
    assert len(data_of(page)["aggregation"]["sites"]) == 1000
    assert len(page.encode()) < 1e6  # 10 MB are allowed
    result.save(tmp_path / "model.json")
    assert report(tmp_path / "model.json", title="Report on the model") == page


# -- other sources ---------------------------------------------------------------------------------


def test_a_model_alone_says_that_it_is_alone(tmp_path):
    model = messages()[0].model
    save_model(model, tmp_path / "model.json", {"made by": "hand"})
    messages()[0].save(tmp_path / "site.moe.json")
    for source in (model, tmp_path / "model.json", str(tmp_path / "site.moe.json")):
        found = data_of(report(source))
        assert found["aggregation"] is None and found["notes"] == [str(Finding.MODEL_ALONE())]
        assert_array_equal(found["model"]["gate"], model.gate.coef)
    assert found["about"]["site"] == "site 0"


def test_an_ensemble_has_no_coefficients():
    found = data_of(report(merged(method="ensemble")))
    assert found["model"] is None and found["notes"] == [str(Finding.NOT_MERGED())]
    assert found["aggregation"]["mass"] is None and len(found["aggregation"]["sites"]) == 4


@pytest.mark.parametrize(
    "method", ["gram", "middle", "weighted_average", "aligned_average", "greedy"]
)
def test_every_method_has_its_page(method, tmp_path):
    sent = [replace(m, grams=made_up_grams(m.model, m.n_samples)) for m in messages()]
    result = aggregate(sent, SUPPORT, method=method)
    result.save(tmp_path / "model.json")
    assert data_of(report(tmp_path / "model.json"))["aggregation"]["method"] == method


def test_what_is_no_source_is_refused():
    refused("no_report", TypeError, kind="MoERegressor").by(report, MoERegressor())


# -- files -----------------------------------------------------------------------------------------

ONE_ERROR = {"kind": "information", "standard_errors": [1.0]}
MANY_EXPERTS = [[1 / 200, 1 / 200]] * 100 + [[0, 0]]
PLACES = [
    ("sites", [], "no_sites_merged aggregation.sites"),
    ("sites.1.site", "site 0", "second_time aggregation.sites[1]"),
    ("sites.0.mass.1", [0.5], "length_of_experts aggregation.sites[0].mass[1]"),
    ("sites.0.mass", [[0.5, 0.4], [0, 0]], "sum_not_one aggregation.sites[0].mass"),
    ("sites.0.mass", MANY_EXPERTS, "limit"),
    ("sites.0.mass.0.0", -0.1, "field_too_small aggregation.sites[0].mass[0][0]"),
    ("sites.0.weight", 1.5, "field_too_large aggregation.sites[0].weight"),
    ("sites.0.sent.model", 1.5, "field_whole aggregation.sites[0].sent.model"),
    ("sites.0.sent.rows", 1, "field_unknown aggregation.sites[0].sent.rows"),
    ("sites.0.site", "a" * 201, "name_too_long aggregation.sites[0].site"),
    ("sites.0.status", "\x1b[31m", "control_character aggregation.sites[0].status"),
    ("covariates.sd", [1.0], "length aggregation.covariates.sd"),
    ("covariates.low.0", 1e9, "low_above_high aggregation.covariates.low[0]"),
    ("gate.0.first", 99, "feature_index aggregation.gate[0].first"),
    ("gate.0.values", [1.0], "length aggregation.gate[0].values"),
    ("gate.0.prob.1", [1.0], "length_of_experts aggregation.gate[0].prob[1]"),
    ("gate.0.prob.0.0", 1.5, "field_too_large aggregation.gate[0].prob[0][0]"),
    ("inference", ONE_ERROR, "length aggregation.inference.standard_errors"),
    ("sites.0.lost", "much", "field_number aggregation.sites[0].lost"),
    ("candidates", [{"method": "kl"}], "field_missing aggregation.candidates[0].n_experts"),
    ("candidates.0.n_experts", -1, "field_too_small aggregation.candidates[0].n_experts"),
    ("alternatives.0.typical", "low", "field_number aggregation.alternatives[0].typical"),
    ("alternatives.0.colour", "red", "field_unknown aggregation.alternatives[0].colour"),
    ("candidates.0.colour", "red", "field_unknown aggregation.candidates[0].colour"),
    ("trace", [1e31], "field_too_large aggregation.trace[0]"),
    ("n_support", -1, "field_too_small aggregation.n_support"),
    ("left_out", {"": "gone"}, 'site_unnamed aggregation.left_out[""]'),
    ("colour", "red", "field_unknown aggregation.colour"),
]


@pytest.mark.parametrize(("place", "value", "words"), PLACES)
def test_a_file_that_says_nonsense_about_its_merging_is_refused(place, value, words, tmp_path):
    path = tmp_path / "model.json"
    merged().save(path)
    path.write_text(json.dumps(put(json.loads(path.read_text()), f"aggregation.{place}", value)))
    facts = {"limit": "experts", "most": 100} if words == "limit" else {}
    for read in (load_model, report):
        refused(words, **facts).by(read, path)


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_every_free_parameter_has_a_standard_error(family, columns, tmp_path):
    model = random_model(np.random.default_rng(0), 3, 2, columns=columns, family=family)
    result = replace(merged(family), model=model)
    part = {"kind": "sandwich", "standard_errors": [0.5] * model.n_parameters}
    sites = [site | {"mass": None} for site in result.document()["sites"]]
    document = result.document() | {"inference": part, "no_inference": None, "sites": sites}
    save_model(model, tmp_path / "model.json", aggregation=document)
    found = data_of(report(tmp_path / "model.json"))["model"]
    assert len(found["estimates"]) == model.n_parameters and found["has_intervals"]
    part["standard_errors"].pop()
    with refused("length aggregation.inference.standard_errors"):
        save_model(model, tmp_path / "model.json", aggregation=document)


def test_words_of_any_kind_can_be_written(tmp_path):
    """Whatever failed is named by somebody else, and the model is still written."""
    words = {"a\nb" * 100: "line\nbreak \x1b", "": "", "site 0": "its second message was refused"}
    out = {site: Notice("said", text) for site, text in words.items()}
    result = replace(merged(), left_out=out, status=Notice("said", "two\nlines"), cost=np.inf)
    result.save(tmp_path / "model.json")
    found = data_of(report(tmp_path / "model.json"))["aggregation"]
    assert found["status"] == "two?lines" and found["cost"] == 1e30
    assert found["left_out"]["site 0"] == "its second message was refused"
    assert sorted(map(len, found["left_out"])) == [1, 6, 200]


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_folder")
def test_the_command_writes_the_page():
    for message in messages(n=5):
        replace(message, support=SUPPORT).save(f"{message.site}.moe.json")
    Path("bad.moe.json").write_text("{")
    words = ["--skip-bad", "--exclude", "site 4", "--seed", 3]
    fine("aggregate", "*.moe.json", *words, "-o", "model.json")
    said = told("report", "model.json", "-o", "page.html")
    page = Path("page.html").read_text()
    assert said == {"command": "report", "output": "page.html", "bytes": len(page.encode())}
    found = data_of(page)
    assert found["title"] == "Report on model.json"
    assert found["about"]["made by"] == "otmoe aggregate"
    sites = [site["site"] for site in found["aggregation"]["sites"]]
    assert sites == [f"site {m}" for m in range(4)]
    assert set(found["aggregation"]["left_out"]) == {"site 4", "bad.moe.json"}
    args = ["report", "model.json", "-o", "page.html"]
    fails(*args, code="output_exists", path=Path("page.html"))
    fine(*args, "--force", "--title", "Ours & theirs")
    assert "<title>Ours &amp; theirs</title>" in Path("page.html").read_text()
    fails("report", "bad.moe.json", "-o", "other.html", code="json_cut")


@pytest.mark.usefixtures("own_folder")
def test_the_file_of_a_run_has_what_the_page_needs():
    fine("simulate", "-o", "data", "--files", 3, "--rows", 900, "--experts", 2, "--features", 2)
    Path("data/part-9.parquet").write_bytes(b"no table")
    fine(*"run data --target y --experts 2 --n-jobs 1 --on-error skip -o m.json".split())
    fine("report", "m.json", "-o", "page.html", "-q")
    part = data_of(Path("page.html").read_text())["aggregation"]
    assert len(part["sites"]) == 3 and sum(site["n_samples"] for site in part["sites"]) == 900
    ((name, why),) = json.loads(Path("m.json").read_text())["aggregation"]["left_out"].items()
    assert "part-9" in name and why["code"] == "not_fitted"
    assert part["left_out"][name] == why["text"]
    fine("predict", "m.json", "data/part-0.parquet", "-o", "p.parquet")
    said = told("inspect", "m.json")
    assert sum(part["bytes"] for part in said["parts"]) == said["bytes"]
    assert "how it was merged" in [part["name"] for part in said["parts"]]


@pytest.mark.usefixtures("own_folder")
def test_a_model_can_be_written_without_the_sites():
    for message in messages(n=3):
        replace(message, support=SUPPORT).save(f"{message.site}.moe.json")
    fine("aggregate", "*.moe.json", "-o", "all.json")
    fine("aggregate", "*.moe.json", "--model-only", "-o", "model.json")
    one, other = (load_model(f"{name}.json").to_vector() for name in ("all", "model"))
    assert_array_equal(one, other)
    assert "aggregation" not in json.loads(Path("model.json").read_text())
    fine("report", "model.json", "-o", "page.html")
    assert data_of(Path("page.html").read_text())["aggregation"] is None


# -- notebooks -------------------------------------------------------------------------------------


def test_notebooks_show_tables():
    result = merged()
    for value in (result, result.model, result.messages[0], merged(method="ensemble").model):
        Reader(value._repr_html_())
    assert f"{result.model.experts.coef[1, 2]:.4g}" in result.model._repr_html_()
    text = result._repr_html_()
    sent = result.messages[2]._repr_html_()
    assert "102 rows" in sent and "few rows." in sent
    assert text.count("<tr>") == 5 and "4 sites by reduction" in text
    long = many(1000)._repr_html_()
    assert long.count("<tr>") == 21 and "and 980 more sites" in long
    page = report(result)
    assert len(repr(page)) < 100 and repr(page).startswith("<a report of")
    assert Reader(page._repr_html_()).tags == [("iframe", ("srcdoc", "sandbox", "style"))]


def test_notebooks_show_names_as_text():
    sent = messages(names=HOSTILE + " {}", features=(HOSTILE, "b"))
    result = replace(aggregate(sent, SUPPORT), left_out={HOSTILE: ODD})
    for value in (result, result.model, sent[0], report(result)):
        assert "<img" not in value._repr_html_()
    assert "&lt;img" in result._repr_html_()


def test_estimators_keep_the_html_of_scikit_learn():
    assert "sk-" in MoERegressor()._repr_html_()
