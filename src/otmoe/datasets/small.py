"""Small public tables that come with the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from otmoe.datasets.sites import SiteData


def load_visits() -> SiteData:
    """Read visits to doctors in the first year of the RAND Health Insurance Experiment.

    Families at six sites were assigned to insurance plans at random. A row is an adult; the
    response is the number of visits in a year, a count. The table is in the public domain;
    ``visits.txt`` next to it names the source of every column.

    Returns
    -------
    SiteData
        3,301 rows of six sites with the features ``coinsurance`` (share of the charges that the
        patient pays), ``age`` (years), ``female``, ``chronic`` (index of chronic diseases),
        ``limited`` (physical limitations) and ``fair_health`` (self-rated health fair or poor).

    Examples
    --------
    >>> data = load_visits()
    >>> data.X.shape, data.target, data.feature_names
    ((3301, 6), 'visits', ('coinsurance', 'age', 'female', 'chronic', 'limited', 'fair_health'))
    """
    text = files("otmoe.datasets").joinpath("tables/visits.csv").read_text(encoding="utf-8")
    head, *lines = text.splitlines()
    site, target, *names = head.split(",")
    rows = np.array([line.split(",") for line in lines], dtype=np.float64)
    sites = np.array([f"{site} {number:.0f}" for number in rows[:, 0]])
    return SiteData(rows[:, 2:], rows[:, 1], sites, tuple(names), target=target)
