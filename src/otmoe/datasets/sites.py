"""Rows of several sites, as the loaders return them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from otmoe.arrays.numerics import Floats
from otmoe.text.errors import MissingPackage
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SiteData:
    """Rows of several sites.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    site : ndarray of shape (n,)
        Site of each row.
    feature_names : tuple of str
    train : ndarray of bool of shape (n,), optional
        Whether a row is for training, if the publisher defines a split.
    target : str
        Name of the response.
    """

    X: Floats = field(repr=False)
    y: Floats = field(repr=False)
    site: Floats = field(repr=False)
    feature_names: tuple[str, ...]
    train: Floats | None = field(default=None, repr=False)
    target: str = "y"

    def frame(self) -> pd.DataFrame:
        """Return the features as a data frame, with their names. Needs pandas.

        Returns
        -------
        pandas.DataFrame of shape (n, d)
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackage(Error.NO_FEATURE_FRAME) from error
        return pd.DataFrame(self.X, columns=list(self.feature_names))

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write a CSV file per site, with features and response, for the command line.

        Parameters
        ----------
        folder : path
            Created if it does not exist; existing files with the same names are replaced.

        Returns
        -------
        list of Path
            Such as ``folder/site 1.csv``, sorted by site.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        columns = {name: self.X[:, j] for j, name in enumerate(self.feature_names)}
        table = pa.table({self.target: self.y, **columns})
        paths = []
        for site in np.unique(self.site).tolist():
            paths.append(Path(folder) / f"{site}.csv")
            pv.write_csv(table.filter(pa.array(self.site == site)), paths[-1])
        return paths
