"""The report: an HTML page on what each site contributed and whether to trust the result."""

from otmoe.reporting.report import Page, report

__all__ = ["Page", "report"]
