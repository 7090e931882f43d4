"""Figures of fits, bursts, concentration, predictability and drift show what their tables hold."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from analysis.characterize import (
    arrival_autocorrelation,
    arrival_dispersion,
    concentration_curve,
    duration_fit_curves,
    duration_predictability,
    nearest_history,
    weekly_drift,
)
from analysis.plots import FIGURES

START_US = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
HOUR = 3600


def jobs_of(num_jobs: int = 1500, *, gpus: float = 1.0, seed: int = 1) -> pl.DataFrame:
    """Five weeks of log-normal jobs of six users, one of them with half of the jobs."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 35 * 24 * HOUR, num_jobs)) * 1_000_000 + START_US
    duration = np.round(rng.lognormal(6, 1.5, num_jobs)) + 1
    time = pl.Series(submit).cast(pl.Datetime("us", "UTC"))
    users = np.where(rng.random(num_jobs) < 0.5, 0, rng.integers(1, 6, num_jobs)).astype(str)
    table = pl.DataFrame({"submit_time": time, "duration_s": duration, "user": users})
    ends = (pl.col("submit_time").dt.timestamp("us") + pl.col("duration_s") * 1e6).cast(pl.Int64)
    return table.with_columns(
        num_gpus=pl.lit(gpus), start_time=pl.col("submit_time"), end_time=ends.cast(pl.Datetime("us", "UTC"))
    )


def lines(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labelled curves by their label."""
    found = {str(line.get_label()): line.get_data() for line in ax.get_lines()}
    return {label: (np.asarray(x), np.asarray(y)) for label, (x, y) in found.items() if not label.startswith("_")}


def bar_lengths(ax: Axes) -> dict[str, list[float]]:
    return {str(bars.get_label()): [bar.get_width() for bar in bars] for bars in ax.containers}


def test_fits_are_drawn_from_the_table_the_observed_first_and_the_pareto_in_the_tail_only():
    table = duration_fit_curves(jobs_of())
    whole = lines(FIGURES["duration_fits"].draw(table))
    assert list(whole) == ["observed", "log-normal", "Weibull", "gamma", "hyper-exp., 2 phases", "hyper-exp., 3 phases"]
    observed = table.filter(bucket="all", family="observed")
    assert whole["observed"][1] == pytest.approx(observed["share"].to_numpy())
    tail = lines(FIGURES["duration_tail_fits"].draw(table))
    assert tail["observed"][1] == pytest.approx(1 - observed["share"].to_numpy())
    assert tail["gen. Pareto tail"][0].min() > np.quantile(jobs_of()["duration_s"].to_numpy(), 0.85)


def test_a_log_of_cpu_jobs_says_so():
    table = duration_fit_curves(jobs_of(gpus=0.0))
    assert "observed (CPU jobs)" in lines(FIGURES["duration_fits"].draw(table))


@pytest.mark.parametrize(
    ("name", "table", "column"),
    [
        ("arrival_dispersion", arrival_dispersion, "idc"),
        ("arrival_autocorrelation", arrival_autocorrelation, "autocorrelation"),
    ],
)
def test_bursts_of_several_logs_have_a_labelled_curve_each(name, table, column):
    tables = {"one": table(jobs_of()), "two": table(jobs_of(seed=2))}
    ax = FIGURES[name].draw(tables)
    drawn = lines(ax)
    assert list(drawn) == ["one", "two"]
    assert drawn["two"][1] == pytest.approx(tables["two"][column].to_numpy())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    assert FIGURES[name].draw(tables["one"]).get_legend() is None


def test_lorenz_curves_hang_below_the_line_of_equals():
    table = concentration_curve(jobs_of())
    drawn = lines(FIGURES["concentration"].draw(table))
    assert set(drawn) == {"all the same", "users, jobs", "users, GPU time"}
    x, y = drawn["users, jobs"]
    assert (y <= x + 1e-12).all()
    both = lines(FIGURES["concentration"].draw({"one": table, "cpu": concentration_curve(jobs_of(gpus=0.0))}))
    assert set(both) == {"all the same", "one (users, GPU time)", "cpu (users, jobs)"}


def test_bars_of_errors_are_those_of_the_tables():
    table = duration_predictability(jobs_of())
    bars = bar_lengths(FIGURES["duration_predictability"].draw(table))
    assert bars["by jobs"] == pytest.approx(table["hindsight_log_mae"].to_list())
    assert bars["by GPU time"] == pytest.approx(table["hindsight_log_mae_gpu_time"].to_list())
    cpu = duration_predictability(jobs_of(gpus=0.0))
    assert list(bar_lengths(FIGURES["duration_predictability"].draw(cpu))) == ["by jobs"]
    looked = nearest_history(jobs_of())
    bars = bar_lengths(FIGURES["nearest_history"].draw(looked))
    assert bars["median of last 15"] == pytest.approx(looked.filter(rule="median_15")["log_mae"].to_list())


def test_drift_leaves_out_what_never_varies_and_shows_a_gap_for_a_week_without_jobs():
    jobs = jobs_of().filter((pl.col("submit_time").dt.day() < 8) | (pl.col("submit_time").dt.day() > 14))
    drawn = lines(FIGURES["weekly_drift"].draw(weekly_drift(jobs)))
    assert "GPUs asked for" not in drawn  # always one
    weeks, values = drawn["durations"]
    table = weekly_drift(jobs).filter(quantity="duration", weight="jobs", against="week_before")
    assert weeks[~np.isnan(values)].tolist() == table["week"].to_list()
    assert values[~np.isnan(values)] == pytest.approx(table["psi"].clip(lower_bound=1e-3).to_numpy())
    assert not FIGURES["weekly_drift"].has_content(weekly_drift(jobs.head(0)))
