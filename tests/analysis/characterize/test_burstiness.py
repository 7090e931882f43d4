"""Burstiness against closed forms: Poisson and batch-Poisson processes, and exact fractional Gaussian noise."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from analysis.characterize.bursts import (
    arrival_autocorrelation,
    arrival_dispersion,
    burstiness,
)
from analysis.characterize.count_series import autocorrelations, gap_statistics
from analysis.characterize.hurst import aggregated_variance, local_whittle, without_cycle

MONDAY_US = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
DAY = 86_400


def jobs_at(seconds: np.ndarray, **more: object) -> pl.DataFrame:
    time = pl.Series(MONDAY_US + (seconds * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame({"submit_time": time}).with_columns(**{name: pl.lit(value) for name, value in more.items()})


def poisson(*, days: float, per_hour: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0, days * DAY, rng.poisson(days * 24 * per_hour)))


def fractional_noise(hurst: float, *, size: int, seed: int) -> np.ndarray:
    """Exact fractional Gaussian noise by circulant embedding (R. B. Davies, D. S. Harte, Biometrika 74, 1987)."""
    lag = np.arange(size + 1, dtype=float)
    h2 = 2 * hurst
    covariance = (np.abs(lag + 1) ** h2 - 2 * lag**h2 + np.abs(lag - 1) ** h2) / 2
    eigen = np.fft.fft(np.concatenate([covariance, covariance[-2:0:-1]])).real
    assert eigen.min() > -1e-9
    rng = np.random.default_rng(seed)
    wave = rng.normal(size=2 * size) + 1j * rng.normal(size=2 * size)
    return np.fft.fft(np.sqrt(np.maximum(eigen, 0) / (2 * size)) * wave).real[:size]


def test_a_poisson_process_has_dispersion_1_gaps_1_and_no_memory():
    days, per_hour = 70, 40.0
    row = burstiness(jobs_at(poisson(days=days, per_hour=per_hour, seed=1))).row(0, named=True)
    assert row["mean_gap_s"] == pytest.approx(3600 / per_hour, rel=3 / row["num_jobs"] ** 0.5)
    # The coefficient of variation of n exponential gaps has standard deviation 1 / sqrt(n).
    assert row["gap_cv"] == pytest.approx(1, abs=3 / row["num_jobs"] ** 0.5)
    for name, window in (("idc_1min", 60), ("idc_10min", 600), ("idc_1h", 3600), ("idc_1d", DAY)):
        # Of n windows with mean m: sqrt(2 / n + 1 / (n m)).
        num, mean = days * DAY / window, per_hour * window / 3600
        assert row[name] == pytest.approx(1, abs=3 * (2 / num + 1 / (num * mean)) ** 0.5), name
    for name in ("acf_1h", "acf_24h", "acf_168h"):
        assert abs(row[name]) < 3 / (days * 24) ** 0.5
    assert row["hurst_whittle"] == pytest.approx(0.5, abs=3 * row["hurst_se"])
    assert row["hurst_whittle_no_week"] == pytest.approx(0.5, abs=3 * row["hurst_se"])
    assert row["hurst_variance"] == pytest.approx(0.5, abs=0.1)


def test_batches_of_a_poisson_process_have_the_dispersion_of_their_size():
    # Batches of b at once: index of dispersion b at every window; squared variation of the gaps 2 b - 1.
    size = 4
    jobs = jobs_at(np.repeat(np.floor(poisson(days=70, per_hour=20, seed=2)), size))
    row = burstiness(jobs).row(0, named=True)
    for name in ("idc_1min", "idc_10min", "idc_1h"):
        assert row[name] == pytest.approx(size, rel=0.1), name
    assert row["gap_cv"] ** 2 == pytest.approx(2 * size - 1, rel=0.05)
    table = arrival_dispersion(jobs)
    assert table["idc"].to_numpy()[:8] == pytest.approx(size, rel=0.15)
    assert table.filter(window_s=3600.0)["mean_jobs"].item() == pytest.approx(20 * size, rel=0.03)


def test_regular_arrivals_have_no_dispersion():
    row = burstiness(jobs_at(np.arange(0, 10 * DAY, 60.0))).row(0, named=True)
    assert row["gap_cv"] == pytest.approx(0, abs=1e-12)
    assert row["idc_1h"] == pytest.approx(0, abs=1e-12)
    assert row["mean_gap_s"] == 60


def test_hand_worked_gaps_and_windows():
    assert gap_statistics(np.array([0, 10, 40]), np.array([1, 1, 2])) == (40 / 3, pytest.approx(0.9354143))
    # One job in every odd second of 20 windows of 10 s, two in the last: counts 5 (19 times) and 6.
    seconds = np.append(np.arange(1, 200, 2), 199)
    jobs = jobs_at(np.concatenate([[0], seconds]).astype(float))
    row = arrival_dispersion(jobs).row(0, named=True)
    counts = np.array([6] + [5] * 18 + [6])
    assert (row["window_s"], row["num_windows"]) == (10, 20)
    assert row["idc"] == pytest.approx(counts.var(ddof=1) / counts.mean())


def test_a_daily_rhythm_shows_at_lags_of_a_day_and_leaves_with_the_week():
    times = poisson(days=70, per_hour=60, seed=3)
    busy = times[(times // 3600) % 24 < 12]
    table = arrival_autocorrelation(jobs_at(busy))
    assert table["lag_h"].to_list() == list(range(1, 337))
    at = dict(zip(table["lag_h"].to_list(), table["autocorrelation"].to_list(), strict=True))
    assert at[24] > 0.9
    assert at[12] < -0.8
    assert table["chance"][0] == pytest.approx(1.96 / (70 * 24) ** 0.5, rel=1e-2)
    row = burstiness(jobs_at(busy)).row(0, named=True)
    assert row["hurst_whittle_no_week"] == pytest.approx(0.5, abs=0.1)
    assert row["acf_168h"] == pytest.approx(at[168])


@pytest.mark.parametrize("hurst", [0.5, 0.7, 0.85])
def test_the_hurst_parameter_of_fractional_gaussian_noise_is_found(hurst):
    by_variance = []
    for seed in range(8):
        noise = fractional_noise(hurst, size=2**15, seed=seed)
        found, error = local_whittle(noise)
        assert found == pytest.approx(hurst, abs=3 * error)
        by_variance.append(aggregated_variance(noise))
    # Its known bias: too low, more so the longer the memory (Taqqu et al. 1995).
    assert -0.06 < np.mean(by_variance) - hurst < 0.02


def test_the_simulated_noise_has_the_covariance_of_its_definition():
    # Of lag 1: 2 ** (2 H - 1) - 1.
    noise = fractional_noise(0.7, size=2**16, seed=5)
    assert autocorrelations(noise, 1)[1] == pytest.approx(2**0.4 - 1, abs=0.02)
    assert noise.var() == pytest.approx(1, abs=0.05)


def test_autocorrelations_agree_with_the_direct_sum():
    series = np.random.default_rng(6).normal(size=101)
    centred = series - series.mean()
    direct = [(centred[: 101 - k] * centred[k:]).sum() / (centred**2).sum() for k in range(20)]
    assert autocorrelations(series, 19) == pytest.approx(direct)
    assert not len(autocorrelations(np.ones(9), 3))


def test_without_cycle_leaves_what_has_no_rhythm():
    rhythm = np.tile(np.repeat([3.0, 1.0, 7.0], 2), 10)
    assert without_cycle(rhythm, period=6, step=2) == pytest.approx(np.zeros(60))


def test_tables_by_group_do_not_depend_on_the_order_of_the_rows():
    one = jobs_at(poisson(days=9, per_hour=20, seed=7), user="a")
    two = jobs_at(np.repeat(poisson(days=9, per_hour=5, seed=8), 4), user="b")
    few = jobs_at(np.arange(99.0), user="c")
    jobs = pl.concat([one, two, few])
    for table in (burstiness, arrival_dispersion, arrival_autocorrelation):
        found = table(jobs, by="user")
        assert found["user"].unique(maintain_order=True).to_list() == ["a", "b"]  # 99 jobs are too few
        assert found.equals(table(jobs.sample(fraction=1.0, shuffle=True, seed=1), by="user"))
        assert found.filter(user="a").drop("user").equals(table(jobs, where=pl.col("user") == "a"))
        assert table(jobs.head(0)).columns == table(one).columns
    wide = dict(burstiness(jobs, by="user").select("user", "idc_1min").iter_rows())
    assert wide["b"] > 3 * wide["a"]


def test_what_a_short_log_does_not_say_is_null():
    row = burstiness(jobs_at(np.arange(0, 7200, 20.0))).row(0, named=True)
    assert row["idc_1min"] is not None
    unknown = ["idc_1h", "idc_1d", "acf_24h", "acf_168h", "hurst_whittle", "hurst_whittle_no_week", "hurst_variance"]
    assert [row[name] for name in unknown] == [None] * len(unknown)


def test_pitfall_a26_a_log_without_submissions_has_no_bursts_and_says_why():
    from analysis.trace import Trace, TraceMeta
    from tests.jobs import make_jobs

    jobs = make_jobs([{"duration_s": 10.0, "num_gpus": 1.0} for _ in range(200)])
    for table in (burstiness, arrival_dispersion, arrival_autocorrelation):
        assert table(jobs).height == 0
        reason = table.missing(Trace(jobs, meta=TraceMeta(name="no times")))
        assert reason == "The log does not say when jobs were submitted."


def test_pitfall_c64_the_clocks_origin_does_not_matter():
    times = poisson(days=9, per_hour=20, seed=9)
    assert burstiness(jobs_at(times)).equals(burstiness(jobs_at(times - MONDAY_US / 1e6)))


def test_pitfall_jobs_of_one_instant_are_no_error():
    row = burstiness(jobs_at(np.zeros(200))).row(0, named=True)
    assert (row["mean_gap_s"], row["gap_cv"], row["idc_1min"]) == (0, None, None)


@pytest.mark.full_trace
def test_real_arrivals_are_bursty_and_remember(real_data):
    jobs = pl.read_csv(real_data("philly/philly_jobs.csv.gz"), try_parse_dates=True)
    row = burstiness(jobs.select(submit_time="timestamp").drop_nulls()).row(0, named=True)
    assert row["gap_cv"] > 3
    assert row["idc_1min"] < row["idc_1h"] < row["idc_1d"]
    assert row["hurst_whittle_no_week"] - 3 * row["hurst_se"] > 0.5
