"""How an error tells of many failures."""

from otmoe.text.notices import Notice
from otmoe.text.sentences import Finding
from otmoe.workers.failures import Failure, TasksFailed


def test_failures_of_one_kind_are_told_once():
    cause = Notice("no_rows", "there are no rows.")
    failures = [Failure(name, cause) for name in ("Lyon", "Nantes", "Brest")]
    failures.insert(1, Failure("Nice", Finding.WORKER_DIED()))
    shown = "Lyon: there are no rows (similarly Nantes, Brest); Nice: " + str(Finding.WORKER_DIED())
    assert TasksFailed(failures).facts["failures"] == f"{shown.removesuffix('.')}."
