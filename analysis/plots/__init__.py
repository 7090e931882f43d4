"""Figures: each function draws one result table into axes (``ax=`` in, axes out), and `FIGURES` lists them all."""

from analysis.plots.distributions import plot_duration_cdf, plot_duration_cdf_gpu_time, plot_queueing_delay_cdf
from analysis.plots.over_time import plot_arrivals_by_hour, plot_arrivals_over_time, plot_running_gpus
from analysis.plots.predictions import plot_captured_share, plot_policies, plot_prediction_errors, plot_predictor_scores
from analysis.plots.published import plot_published_comparison
from analysis.plots.registry import FIGURES, FigureSpec, Tables, by_log, figure, render_svg, write_figures
from analysis.plots.shares import plot_gpu_demand, plot_status, plot_top_users, plot_top_vcs
from analysis.plots.style import new_axes, to_png, to_svg

__all__ = [
    "FIGURES",
    "FigureSpec",
    "Tables",
    "by_log",
    "figure",
    "new_axes",
    "plot_arrivals_by_hour",
    "plot_arrivals_over_time",
    "plot_captured_share",
    "plot_duration_cdf",
    "plot_duration_cdf_gpu_time",
    "plot_gpu_demand",
    "plot_policies",
    "plot_prediction_errors",
    "plot_predictor_scores",
    "plot_published_comparison",
    "plot_queueing_delay_cdf",
    "plot_running_gpus",
    "plot_status",
    "plot_top_users",
    "plot_top_vcs",
    "render_svg",
    "to_png",
    "to_svg",
    "write_figures",
]
