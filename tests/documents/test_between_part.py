"""How sites differ, in a model file: it comes back as it was, and what is spoilt is refused."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from numpy.testing import assert_array_equal
from oracles import differing_sites, how_they_differ, random_model
from refusals import NOTHING, put, refused, refused_document

from otmoe import Limits, load_between, load_model, save_model
from otmoe.documents.between import Block
from otmoe.documents.json_schema import json_schema
from otmoe.documents.model_file import ModelFile
from otmoe.inference.between import Between
from otmoe.likelihood.prior import BLOCKS, Prior
from otmoe.model.mixture import MoE

LABELS = {"logistic": ["no", "yes"], "multinomial": ["no", "yes", "perhaps"]}


def made(family="gaussian", n_sites=6, **options):
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2, columns=(0, 1), family=family)
    found = how_they_differ(model, differing_sites(rng, model, n_sites), **options)
    classes = np.array(LABELS[family]) if family in LABELS else None
    names = {"feature_names": ("age", "dose"), "classes": classes}
    centre = replace(found.prior.centre, **names)
    prior = replace(found.prior, centre=centre)
    return replace(found, common=replace(found.common, **names), prior=prior)


@pytest.fixture(scope="module")
def found():
    return made()


def saved(found, path):
    save_model(found.common, path, between=found)
    return path


def assert_same(one, other):
    """Assert that two values are equal to the last bit, field by field."""
    if isinstance(one, MoE):
        assert_same(one.experts.coef, other.experts.coef)
        assert_same(one.gate.coef, other.gate.coef)
        assert one.terms == other.terms and one.gate.columns == other.gate.columns
        assert one.experts.dispersion is None or np.array_equal(
            one.experts.dispersion, other.experts.dispersion
        )
    elif hasattr(one, "__dataclass_fields__"):
        assert type(one) is type(other)
        for part in fields(one):
            if part.compare:
                assert_same(getattr(one, part.name), getattr(other, part.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert_array_equal(one, other)


def test_it_comes_back_as_it_was(family, tmp_path):
    found = made(family)
    path = saved(found, tmp_path / "model.json")
    again = load_between(path)
    assert_same(again, found)
    assert_same(load_model(path), found.common)
    assert_array_equal(again.model_of("site 3").to_vector(), found.model_of("site 3").to_vector())
    text = path.read_text()
    assert ModelFile.from_json(text).to_json() == text
    Draft202012Validator(json_schema("model")).validate(json.loads(text))


@pytest.mark.parametrize("restrict", ["gate", "intercepts"])
def test_also_where_little_may_differ(restrict, tmp_path):
    found = made(restrict=restrict)
    assert_same(load_between(saved(found, tmp_path / "model.json")), found)


def test_also_with_few_sites_and_with_what_is_infinite_or_no_number(found, tmp_path):
    few = made(n_sites=3)
    assert [notice.code for notice in few.warnings] == ["few_sites"]
    assert_same(load_between(saved(few, tmp_path / "few.json")), few)
    site = replace(found.sites[0], error=np.where(np.arange(10) == 2, np.inf, 1.0))
    first = replace(found.spreads[0], high=np.inf, q=np.nan, p_value=np.nan)
    odd = replace(found, sites=(site,), spreads=(first, *found.spreads[1:]))
    assert_same(load_between(saved(odd, tmp_path / "odd.json")), odd)


def test_a_file_may_keep_the_names_of_sites_to_itself(found, tmp_path):
    bare = replace(found, sites=())
    again = load_between(saved(bare, tmp_path / "model.json"))
    assert_same(again, bare)
    assert "site 3" not in (tmp_path / "model.json").read_text()
    assert_array_equal(again.prediction_interval(), found.prediction_interval())
    refused("site_unknown", sites=[]).by(again.model_of, "site 3")


def test_a_file_without_it_says_nothing_about_it(found, tmp_path):
    save_model(found.common, tmp_path / "model.json")
    assert load_between(tmp_path / "model.json") is None
    assert "between" not in (tmp_path / "model.json").read_text()


def test_the_blocks_of_the_file_are_those_there_are():
    assert Block.__args__ == BLOCKS
    assert isinstance(made(), Between) and isinstance(made().prior, Prior)


SPOILT = [
    ("prior.tau.gate slopes", -0.1, 'field_too_small between.prior.tau["gate slopes"]'),
    ("prior.tau.all slopes", 0.1, 'field_choice between.prior.tau["all slopes"]'),
    ("prior.tau.gate slopes", float("nan"), 'field_nan between.prior.tau["gate slopes"]'),
    ("prior.tau.gate slopes", 7.5, "tau_of_prior between.spreads[1].tau"),
    ("prior.design_effect", 0.5, "field_too_small between.prior.design_effect"),
    ("prior.n_sites", 2.5, "field_whole between.prior.n_sites"),
    ("prior.scaling.x_scale", [1.0], "length_for_each between.prior.scaling.x_scale"),
    ("prior.scaling.x_scale.0", 0.0, "field_not_positive between.prior.scaling.x_scale[0]"),
    ("prior.centre", NOTHING, "field_missing between.prior.centre"),
    ("prior.centre.gate.coef.0.2", 1.0, "not_zero between.prior.centre.gate.coef[0][2]"),
    ("prior.centre.gate.columns", [0, 7], "gate_column between.prior.centre.gate.columns[1]"),
    ("prior.centre.gate.columns", None, "other_parameters between.prior.centre"),
    ("prior.centre.experts.var", [1.0], "length_of_model between.prior.centre.experts.var"),
    ("prior.centre.experts.var.1", -1.0, "field_not_positive between.prior.centre.experts.var[1]"),
    ("prior.centre.feature_names", ["a"], "length_of_names between.prior.centre.feature_names"),
    ("prior.centre.feature_names", ["a", "b"], "other_parameters between.prior.centre"),
    ("prior.centre.classes", ["a", "b"], "no_classes_here between.prior.centre.classes"),
    ("common.family", "poisson", "field_unknown between.common.experts.var"),
    ("common.feature_names", None, "other_parameters between.common"),
    ("spreads", [], "blocks_of_model between.spreads"),
    ("spreads.0.block", "slopes", "field_choice between.spreads[0].block"),
    ("spreads.0.block", "gate slopes", "blocks_of_model between.spreads"),
    ("spreads.0.tau", -1.0, "field_too_small between.spreads[0].tau"),
    ("spreads.0.low", 1e9, "low_above_high between.spreads[0].low"),
    ("spreads.0.n_parameters", 9, "parameters_of_block between.spreads[0].n_parameters"),
    ("spreads.0.p_value", 1.5, "field_too_large between.spreads[0].p_value"),
    ("spreads.0.i2", 0.5, "field_unknown between.spreads[0].i2"),
    ("overall.df", None, "field_number between.overall.df"),
    ("mean", [1.0], "length_for_each between.mean"),
    ("mean.0", float("inf"), "field_infinite between.mean[0]"),
    ("mean_error.0", -1.0, "field_too_small between.mean_error[0]"),
    ("deviation", [], "length_for_each between.deviation"),
    ("sites.1.site", "site 0", "second_time between.sites[1]"),
    ("sites.1.site", " ", "site_unnamed between.sites[1].site"),
    ("sites.1.estimate", [0.0], "length_for_each between.sites[1].estimate"),
    ("sites.1.estimate.0", None, "field_number between.sites[1].estimate[0]"),
    ("sites.1.error.0", -1.0, "field_too_small between.sites[1].error[0]"),
    ("sites.1.shrunk", [0.0], "length_for_each between.sites[1].shrunk"),
    ("sites.1.shrunk.9", 800.0, "no_personal_model between.sites[1].shrunk"),  # e^800: overflows
    ("sites.1.shrunk.9", -800.0, "no_personal_model between.sites[1].shrunk"),
    ("prior.scaling.x_center.0", 1e30, "no_personal_model between.sites[0].shrunk"),
    ("sites.1.shrunk_error.0", None, "field_number between.sites[1].shrunk_error[0]"),
    ("sites.1.q", -1.0, "field_too_small between.sites[1].q"),
    ("sites.1.n_samples", 0, "field_not_positive between.sites[1].n_samples"),
    ("warnings", ["\x1b[31m"], "control_character between.warnings[0]"),
    ("sites", {}, "field_list between.sites"),
]


@pytest.mark.parametrize(("path", "value", "problem"), SPOILT)
def test_what_is_spoilt_is_refused_with_a_sentence(found, path, value, problem):
    document = ModelFile(found.common, between=found).document()
    document = json.loads(json.dumps(document))
    put(document["between"], path, value)
    refused_document(ModelFile, document, "model.json", problem, {})


def test_limits_are_those_of_models(found):
    text = ModelFile(found.common, between=found).to_json()
    refused("limit", what="more than 1 experts").by(
        ModelFile.from_json, text, limits=Limits(experts=1)
    )
    refused("limit").by(ModelFile.from_json, text, limits=Limits(values=200))
