"""A file imports only from files above it, and optional packages only where they are needed."""

import ast
from pathlib import Path

import pytest

import otmoe

ORDER = """
    _kernels.py
    _triton.py
    numerics.py
    plans.py
    newton.py
    htmltext.py
    experts/base.py
    experts/gaussian.py
    experts/glm.py
    experts/softmax.py
    experts/__init__.py
    gate.py
    model.py
    pooled.py
    transport.py
    rows.py
    information.py
    steps.py
    starts.py
    em.py
    refinement.py
    inference/parameters.py
    inference/covariance.py
    inference/estimates.py
    inference/summary.py
    inference/result.py
    inference/__init__.py
    progress.py
    validation.py
    outputs.py
    jsontext.py
    records.py
    tables.py
    columns.py
    features.py
    grams.py
    clusters.py
    sketch.py
    sketchrecord.py
    aggregationrecord.py
    schema.py
    refinerecord.py
    json_schema.py
    message.py
    refinefile.py
    refinerounds.py
    shards/files.py
    shards/sources.py
    shards/gathering.py
    shards/reading.py
    shards/memory.py
    shards/cutting.py
    shards/sampling.py
    shards/writing.py
    shards/__init__.py
    screening.py
    support.py
    aggregation/sources.py
    aggregation/mm.py
    aggregation/merging.py
    aggregation/starting.py
    aggregation/gating.py
    aggregation/problem.py
    aggregation/outliers.py
    aggregation/parts.py
    aggregation/result.py
    aggregation/methods.py
    aggregation/gram.py
    aggregation/__init__.py
    futures.py
    local.py
    chances.py
    refining.py
    summing.py
    distributed.py
    datasets/simulation.py
    datasets/real.py
    datasets/__init__.py
    metrics.py
    estimators/base.py
    estimators/regressor.py
    estimators/classifier.py
    estimators/distributed.py
    estimators/__init__.py
    replying.py
    integrations/__init__.py
    integrations/ray.py
    integrations/query.py
    integrations/nodes.py
    integrations/flowerrounds.py
    integrations/flower.py
    prediction.py
    evaluation.py
    reporting/checks.py
    reporting/data.py
    reporting/__init__.py
    selection/result.py
    selection/scores.py
    selection/__init__.py
    plot/base.py
    plot/flow.py
    plot/coefficients.py
    plot/gates.py
    plot/predictions.py
    plot/traces.py
    plot/__init__.py
    __init__.py
    cli/common.py
    cli/engines.py
    cli/options.py
    cli/tables.py
    cli/simulate.py
    cli/features.py
    cli/run.py
    cli/predict.py
    cli/inspect.py
    cli/fit.py
    cli/inbox.py
    cli/aggregate.py
    cli/select.py
    cli/refine.py
    cli/report.py
    cli/evaluate.py
    cli/__init__.py
    __main__.py
""".split()

OPTIONAL = {"dask", "flwr", "matplotlib", "pandas", "ray", "torch"}

ROOT = Path(otmoe.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def parse(file):
    return ast.parse((ROOT / file).read_text())


def imported(tree):
    """Yield the dotted name of everything imported below a node; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports: from otmoe.x import y"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def home(name):
    """Return the file of the package that a dotted name comes from, or None if it is elsewhere."""
    parts = name.split(".")
    if parts[0] != ROOT.name:
        return None
    for size in range(len(parts), 0, -1):
        path = "/".join(parts[1:size])
        for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if file in FILES:
                return file
    raise AssertionError(f"{name} is imported but there is no such file")


def runs_at_import(tree):
    """Yield the statements that run when a module is imported, type-checking blocks left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from runs_at_import(node)


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_from_files_above_it(file):
    assert file in ORDER, (
        f"{file} has no place yet: add it to ORDER in {__file__}, and to CONTRIBUTING.md"
    )
    above = ORDER[: ORDER.index(file)]
    for name in imported(parse(file)):
        assert home(name) in (None, *above), f"{file} imports {name}, which is not above it"


@pytest.mark.parametrize("file", FILES)
def test_optional_packages_are_not_imported_with_the_module(file):
    if file == "_triton.py":
        pytest.skip("imported by numerics.py when it is given a CUDA tensor, and only then")
    for node in runs_at_import(parse(file)):
        packages = {name.split(".")[0] for name in imported(node)}
        assert not packages & OPTIONAL, f"{file}: import {packages & OPTIONAL} where it is used"


def test_the_checks_above_see_what_they_should():
    assert home("otmoe._kernels") == "_kernels.py"
    assert home("otmoe.experts.FAMILIES") == "experts/__init__.py"
    assert home("otmoe.MoE") == "__init__.py"
    assert home("numpy.linalg") is None
    code = "try:\n import torch\nexcept ImportError: pass\ndef f():\n import pandas"
    assert [name for n in runs_at_import(ast.parse(code)) for name in imported(n)] == ["torch"]
