"""What a server is told about an error at a site."""

from otmoe.federation.policy.told import told
from otmoe.federation.policy.verdict import Refused
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Finding

LEVELS = InvalidInput(Error.COLUMN_LEVELS, column="name", values='"Zoe" (1 rows)', more="")


def test_codes_and_columns_are_told_and_values_are_not():
    expected = "column_levels, about column name; see the site's log for details."
    assert told(LEVELS, ["name"]) == expected
    assert "Zoe" in str(LEVELS)


def test_columns_that_nobody_asked_for_are_not_named():
    assert told(LEVELS, ["age"]) == "column_levels; see the site's log for details."


def test_a_refusal_is_told_by_its_rules():
    error = Refused(Error.POLICY_REFUSES, reasons="1 row has city=Nice", rules=["cells", "rows"])
    assert told(error) == "policy_refuses, by rule cells, rows; see the site's log for details."


def test_of_other_errors_the_kind_is_told():
    assert told(KeyError("Zoe")) == "KeyError; see the site's log for details."
    assert told(LEVELS, ["name"], explain=False) == str(Finding.NODE_SILENT())
