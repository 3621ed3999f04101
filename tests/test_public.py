import inspect

import pytest

import otmoe

MEMBERS = [
    pytest.param(member, id=f"{name}.{attribute}")
    for name in otmoe.__all__
    if inspect.isclass(getattr(otmoe, name))
    for base in getattr(otmoe, name).__mro__
    if base.__module__.startswith("otmoe.")
    for attribute, member in vars(base).items()
    if not attribute.startswith("_") and (callable(member) or isinstance(member, property))
]


def test_the_public_names_are_sorted():
    assert otmoe.__all__ == sorted(otmoe.__all__)


@pytest.mark.parametrize("name", [name for name in otmoe.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name):
    assert inspect.getdoc(getattr(otmoe, name))


@pytest.mark.parametrize("member", MEMBERS)
def test_every_public_method_is_documented(member):
    assert inspect.getdoc(member)


def test_the_version_is_that_of_the_distribution():
    major, minor, *_ = otmoe.__version__.split(".")
    assert major.isdigit() and minor.isdigit()
