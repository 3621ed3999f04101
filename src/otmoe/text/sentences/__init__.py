"""All sentences shown to users, by code; one file per kind, so that wording can be improved.

Code and tests use only the codes. ``python -m otmoe.text.sentences`` prints all of them.
"""

from otmoe.text.sentences.errors import Error
from otmoe.text.sentences.findings import Finding
from otmoe.text.sentences.statuses import Status
from otmoe.text.sentences.warnings import Warn

__all__ = ["Error", "Finding", "Status", "Warn"]
