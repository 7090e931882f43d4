"""The report: one HTML page about a log, made from its result tables."""

from analysis.report.findings import find
from analysis.report.page import render_report, write_report

__all__ = ["find", "render_report", "write_report"]
