"""The report: one HTML page about a log, or about several side by side, made from their result tables."""

from analysis.report.blocks import stacked
from analysis.report.compared import name_logs
from analysis.report.findings import find
from analysis.report.page import render_comparison, render_report, write_comparison, write_report
from analysis.report.published import compare_with_published, published_gains, published_rows

__all__ = [
    "compare_with_published",
    "find",
    "name_logs",
    "published_gains",
    "published_rows",
    "render_comparison",
    "render_report",
    "stacked",
    "write_comparison",
    "write_report",
]
