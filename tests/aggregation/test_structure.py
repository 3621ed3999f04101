"""Merging and refining within a structure: every merged model has it, and rounds end at the fit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from refusals import put, refused

from otmoe import LocalModel, MoERegressor, aggregate, load_model, save_model
from otmoe.documents.state import RefineState
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.inference.observed import fitted_inference, refined_inference
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.model.structure import Structure

STRUCTURES = {
    "common": Structure(columns=((0, 1, 2),), common=(2,)),
    "common intercept": Structure(columns=((0, 1, 2),), common=(0, 2)),
    "own": Structure(columns=((0, 1, 2), (0, 2)), common=(2,), names=("rising", "flat")),
    "constants": Structure(columns=((0,),)),
    "variance": Structure(columns=((0, 1, 2),), common=(2,), common_variance=True),
    "origin": Structure(columns=((0, 1, 2), (2,)), common=(2,)),
    "all at the origin": Structure(columns=((1, 2),)),
}
METHODS = ["auto", "reduction", "kl", "gram", "middle", "weighted_average", "aligned_average"]
METHODS += ["greedy", "median", "trimmed", "geometric_median", "krum"]
PLAIN = {"alpha": 0.0, "expert_alpha": 0.0}


def table(family, seed=0, n=2400):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + [1.0, 5.0, 0.0]
    first = rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 2]))
    half = 0.5 if family == "poisson" else 1.0
    eta = half * (np.where(first, 3.0 + 2 * X[:, 0], 0.0) + 0.2 * X[:, 1])
    y = eta + rng.normal(size=n) if family == "gaussian" else rng.poisson(np.exp(eta))
    return X, y.astype(float)


def fitted(X, y, family, structure):
    how = {"structure": structure, "gate_columns": (0, 3), "random_state": 0, **PLAIN}
    return em(X, y, 2, family=family, **how)


def sent(family, structure, X, y, n_sites=3):
    """Return messages of sites, as they come out of their files."""
    found = []
    for i, part in enumerate(np.array_split(np.arange(len(y)), n_sites)):
        est = MoERegressor(
            2,
            family=family,
            expert_features=[
                [*(j - 1 for j in own if j), *([] if 0 in own else ["-intercept"])]
                for own in structure.columns
            ],
            common=[j - 1 if j else "intercept" for j in structure.common],
            common_variance=structure.common_variance,
            gate_features=[2],
            random_state=0,
            **PLAIN,
        )
        if not structure.labelled:
            est.set_params(expert_features=est.expert_features[0])
        est.fit(X[part], y[part])
        message = est.to_message(site=f"s{i}", X=X[part], y=y[part], sketch=True, grams=True)
        found.append(LocalModel.from_json(message.to_json()))
    return found


@pytest.mark.filterwarnings("ignore::otmoe.text.notices.OtmoeWarning")
@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_every_method_keeps_the_structure(family, name):
    structure = STRUCTURES[name]
    if structure.common_variance and family == "poisson":
        return
    X, y = table(family)
    messages = sent(family, structure, X, y)
    pooled = fitted(X, y, family, structure)
    lost = {}
    for method in METHODS:
        model = aggregate(messages, support=X[:400], method=method).model
        assert model.structure == replace(structure, names=None)
        assert_allclose(
            model.structure.projected(model.experts).to_vector(),
            model.experts.to_vector(),
            rtol=1e-14,
        )
        lost[method] = pooled.log_likelihood - model.log_density(X, y).sum()
    assert min(lost.values()) > -1e-6  # the pooled fit is the maximum
    if name in ("common", "own", "variance", "origin"):  # which are right: sites agree up to chance
        assert max(lost[method] for method in ("auto", "reduction", "kl", "gram")) < 3.0


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("name", ["common intercept", "own", "variance", "origin"])
def test_rounds_by_files_end_at_the_pooled_fit(family, name):
    structure = STRUCTURES[name]
    if structure.common_variance and family == "poisson":
        return
    X, y = table(family)
    fit = fitted(X, y, family, structure)
    parts = np.array_split(np.arange(len(y)), 3)
    rows = {f"s{i}": Rows(X[p], y[p]) for i, p in enumerate(parts)}
    sizes = {name: len(part) for name, part in rows.items()}
    start = fitted(X[parts[0]], y[parts[0]], family, structure).model
    state = begin(start, sizes, Scaling.of(X[:300]), ridge=Ridge(0.0, 0.0))
    while not state.done:
        request = request_of(state)
        replies = [reply_to(request, part, site) for site, part in rows.items()]
        state = RefineState.from_json(step(state, replies).to_json())
    se = fitted_inference(fit, fit.model).standard_errors.coef
    order = state.model.order_like(fit.model, X[:300])
    gap = np.abs(state.model.experts.coef[order] - fit.model.experts.coef)
    assert state.refinement.converged and np.max(gap / np.where(se > 0, se, 1.0)) < 1e-3
    assert np.all(state.model.experts.coef[order][se == 0] == 0)
    found = refined_inference(state.refinement)
    assert_allclose(found.standard_errors.coef[order], se, rtol=1e-3, atol=1e-12)
    assert found.rank == fit.rank


def test_sites_with_other_restrictions_are_refused():
    X, y = table("gaussian", n=600)
    one = sent("gaussian", STRUCTURES["common"], X, y, 2)
    two = sent("gaussian", STRUCTURES["variance"], X, y, 2)
    mixed = [one[0], replace(two[1], site="other")]
    refused("structure_differs").by(aggregate, mixed, support=X[:100])
    three = sent("gaussian", STRUCTURES["constants"], X, y, 2)
    refused("structure_differs", what="experts see different columns").by(
        aggregate, [one[0], replace(three[1], site="other")], support=X[:100]
    )
    four = sent("gaussian", STRUCTURES["common intercept"], X, y, 2)
    refused("structure_differs", what="different common coefficients").by(
        aggregate, [one[0], replace(four[1], site="other")], support=X[:100]
    )


def test_a_file_brings_its_structure_and_is_held_to_it(tmp_path):
    X, y = table("gaussian", n=600)
    model = fitted(X, y, "gaussian", replace(STRUCTURES["own"], common_variance=True)).model
    path = save_model(model, tmp_path / "model.json")
    again = load_model(path)
    assert again.structure == model.structure
    assert (again.to_vector() == model.to_vector()).all()
    document = json.loads(path.read_text())

    def spoilt(place, value):
        path.write_text(json.dumps(put(json.loads(json.dumps(document)), place, value)))
        load_model(path)

    part = "model.structure"
    columns = document["model"]["structure"]["columns"]
    refused(f"structure_count {part}.columns").by(spoilt, f"{part}.columns", [*columns, [0]])
    refused(f"structure_count {part}.names").by(spoilt, f"{part}.names", ["one"])
    refused(f"gate_column {part}.columns[0][1]").by(spoilt, f"{part}.columns.0.1", 9)
    refused(f"no_columns {part}.columns[1]").by(spoilt, f"{part}.columns.1", [])
    refused("not_zero model.experts.coef[1][0]").by(spoilt, f"{part}.columns.1", [2])
    refused("not_zero model.experts.coef[1][1]").by(spoilt, "model.experts.coef.1.1", 0.5)
    refused("not_common model.experts.coef").by(spoilt, "model.experts.coef.1.2", 0.5)
    refused("not_common model.experts.var").by(spoilt, "model.experts.var.1", 9.0)
