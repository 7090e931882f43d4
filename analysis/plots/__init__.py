"""Figures: each function draws one result table into axes (``ax=`` in, axes out), and `FIGURES` lists them all."""

from analysis.plots.backtests import plot_calibration_curve, plot_error_by_window
from analysis.plots.bursts import plot_arrival_autocorrelation, plot_arrival_dispersion
from analysis.plots.distributions import plot_duration_cdf, plot_duration_cdf_gpu_time, plot_queueing_delay_cdf
from analysis.plots.drift import plot_weekly_drift
from analysis.plots.explanations import plot_importance, plot_shape_gpus, plot_shape_hour, plot_shape_limit
from analysis.plots.fidelity import plot_fidelity
from analysis.plots.fits import plot_duration_fits, plot_duration_tail_fits
from analysis.plots.gantt import plot_gantt
from analysis.plots.hardware import plot_allocation_by_type, plot_fragmentation, plot_idle_gpu_hours
from analysis.plots.inequality import plot_concentration
from analysis.plots.losses import (
    plot_outcomes_by_size,
    plot_slowdown,
    plot_time_to_failure,
    plot_what_jobs_wait_for,
)
from analysis.plots.nodes import plot_consolidation
from analysis.plots.over_time import plot_arrivals_by_hour, plot_arrivals_over_time, plot_running_gpus
from analysis.plots.predictability import plot_duration_predictability, plot_nearest_history
from analysis.plots.predictions import plot_captured_share, plot_policies, plot_prediction_errors, plot_predictor_scores
from analysis.plots.published import plot_published_comparison
from analysis.plots.registry import FIGURES, FigureSpec, Tables, by_log, figure, render_svg, write_figure, write_figures
from analysis.plots.replays import (
    plot_replay_allocation,
    plot_replay_delays,
    plot_replay_jct,
    plot_replay_queue,
    plot_replay_queue_gpus,
)
from analysis.plots.shares import plot_gpu_demand, plot_status, plot_top_users, plot_top_vcs
from analysis.plots.style import new_axes, to_png, to_svg
from analysis.plots.tenancy import plot_vc_load, plot_wasteful_users
from analysis.plots.vc_load import plot_vc_imbalance
from analysis.plots.waits import plot_queueing_by_hour

__all__ = [
    "FIGURES",
    "FigureSpec",
    "Tables",
    "by_log",
    "figure",
    "new_axes",
    "plot_allocation_by_type",
    "plot_arrival_autocorrelation",
    "plot_arrival_dispersion",
    "plot_arrivals_by_hour",
    "plot_arrivals_over_time",
    "plot_calibration_curve",
    "plot_captured_share",
    "plot_concentration",
    "plot_consolidation",
    "plot_duration_cdf",
    "plot_duration_cdf_gpu_time",
    "plot_duration_fits",
    "plot_duration_predictability",
    "plot_duration_tail_fits",
    "plot_error_by_window",
    "plot_fidelity",
    "plot_fragmentation",
    "plot_gantt",
    "plot_gpu_demand",
    "plot_idle_gpu_hours",
    "plot_importance",
    "plot_nearest_history",
    "plot_outcomes_by_size",
    "plot_policies",
    "plot_prediction_errors",
    "plot_predictor_scores",
    "plot_published_comparison",
    "plot_queueing_by_hour",
    "plot_queueing_delay_cdf",
    "plot_replay_allocation",
    "plot_replay_delays",
    "plot_replay_jct",
    "plot_replay_queue",
    "plot_replay_queue_gpus",
    "plot_running_gpus",
    "plot_shape_gpus",
    "plot_shape_hour",
    "plot_shape_limit",
    "plot_slowdown",
    "plot_status",
    "plot_time_to_failure",
    "plot_top_users",
    "plot_top_vcs",
    "plot_vc_imbalance",
    "plot_vc_load",
    "plot_wasteful_users",
    "plot_weekly_drift",
    "plot_what_jobs_wait_for",
    "render_svg",
    "to_png",
    "to_svg",
    "write_figure",
    "write_figures",
]
