"""What a server is told about an error: its code and the columns it asked for, never a value."""

from __future__ import annotations

from collections.abc import Collection

from otmoe.text.errors import OtmoeError
from otmoe.text.sentences import Finding


def told(error: BaseException, columns: Collection[str] = (), *, explain: bool = True) -> str:
    """Return an error as it may leave a site; its own log has the sentence.

    Parameters
    ----------
    error : exception
    columns : collection of str
        What was asked for: other columns are not named.
    explain : bool
        Whether the code may leave; if not, only that it failed.

    Examples
    --------
    >>> from otmoe.text.errors import InvalidInput
    >>> from otmoe.text.sentences import Error
    >>> error = InvalidInput(Error.COLUMN_LEVELS, column="name", values='"Zoe" (1 rows)', more="")
    >>> print(told(error, ["name"]))
    column_levels, about column name; see the site's log for details.
    """
    if not explain:
        return str(Finding.NODE_SILENT())
    if not isinstance(error, OtmoeError):
        return str(Finding.NODE_TOLD(code=type(error).__name__, about=""))
    about = ""
    if error.facts.get("column") in columns:
        about = f", about column {error.facts['column']}"
    if "rules" in error.facts:
        about = f", by rule {', '.join(error.facts['rules'])}"
    return str(Finding.NODE_TOLD(code=error.code, about=about))
