"""Forecasts of demand: rules and mix against plain Python, nothing of the future, honest quantiles, odd input."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from analysis.errors import HindcastError, UnknownNameError, UsageError
from predictors.targets import DemandForecaster, backtest_demand
from predictors.targets import demand_mix as mix
from predictors.targets.demand_experts import LEARNERS, learned, rules, stage_starts, targets

MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def table(values, *, first: datetime = MONDAY) -> pl.DataFrame:
    times = [first + timedelta(hours=h) for h in range(len(values))]
    return pl.DataFrame({"time": times, "value": np.asarray(values, dtype=float)}, nan_to_null=True)


def wavy(num: int, *, seed: int = 0, gaps: bool = True) -> np.ndarray:
    """A day's rhythm, a wandering level, and holes."""
    rng = np.random.default_rng(seed)
    hour = np.arange(num)
    values = 100 + 20 * np.sin(hour * 2 * np.pi / 24) + np.cumsum(rng.normal(0, 2, num))
    values = np.maximum(values, 0)
    if gaps:
        values[rng.random(num) < 0.03] = np.nan
        values[num // 3 : num // 3 + 30] = np.nan
    return values


def mean(found: list[float]) -> float:
    known = [each for each in found if not math.isnan(each)]
    return sum(known) / len(known) if known else math.nan


def plain_rules(values: list[float], horizon: int) -> dict[str, float]:
    """What the rules say of the hour ``horizon`` after the last, written down from their definitions."""
    known = [each for each in values if not math.isnan(each)]
    last = known[-1] if known else math.nan
    at = lambda place: values[place] if 0 <= place < len(values) else math.nan  # noqa: E731
    target = len(values) - 1 + horizon

    def season(hours: int) -> float:
        places = [target - hours * k for k in range(1, 200) if target - hours * k < len(values)][:4]
        return next((at(place) for place in places if not math.isnan(at(place))), last)

    day, week = mean(values[-24:]), mean(values[-168:])
    day, week = (last if math.isnan(each) else each for each in (day, week))
    steps, now = horizon % 24, len(values) - 1
    changes = [at(now - 24 * k + steps) - at(now - 24 * k) for k in range(1, 29)]
    shift = mean(changes) / 2
    shift = 0.0 if math.isnan(shift) else shift
    return {
        "last": last,
        "daily": season(24),
        "weekly": season(168),
        "day_mean": day,
        "week_mean": week,
        "to_day_mean": 0.75 * last + 0.25 * day,
        "to_week_mean": 0.75 * last + 0.25 * week,
        "half_week_mean": 0.5 * last + 0.5 * week,
        "shifted": last + shift,
        "half_week_mean_shifted": 0.5 * last + 0.5 * week + shift,
    }


@pytest.mark.parametrize("horizon", [1, 6, 23, 24, 25, 168, 200])
def test_rules_agree_with_plain_python(horizon):
    values = wavy(700)
    found = rules(values, horizon)
    for place in (0, 1, 30, 200, 233, 260, 500, 699):
        expected = plain_rules(values[: place + 1].tolist(), horizon)
        assert {name: said[place] for name, said in found.items()} == pytest.approx(expected, nan_ok=True)


def test_before_the_first_value_nobody_says_anything():
    values = np.array([np.nan, np.nan, 5.0, np.nan])
    for said in rules(values, 1).values():
        assert np.isnan(said[:2]).all()
        assert said[2:].tolist() == [5.0, 5.0]


@pytest.mark.parametrize("horizon", [1, 24])
def test_learners_see_no_target_that_was_not_known(horizon):
    values = wavy(900)
    starts = stage_starts(900, first=200, first_hour=0, every=168)
    assert starts == [200, 336, 504, 672, 840]
    found = learned(values, horizon, starts)
    changed = values.copy()
    changed[700:] = 3.0
    again = learned(changed, horizon, starts)
    for name in LEARNERS:
        assert np.isfinite(found[name][200:]).all()
        np.testing.assert_array_equal(found[name][:700], again[name][:700])
        assert (found[name][840:] != again[name][840:]).any()


def test_the_linear_learner_finds_a_rhythm_that_no_rule_says_in_full():
    # Every change of the level is undone by half in the next hour.
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 5, 2000)
    values = 100 + noise
    said = learned(values, 1, stage_starts(2000, first=1000, first_hour=0, every=168))["linear"]
    truth = targets(values, 1)
    rows = slice(1000, 1999)
    error = np.abs(said - truth)[rows].mean()
    # The best forecast of noise is its mean: its mean absolute error is that of a normal distribution.
    assert error == pytest.approx(5 * math.sqrt(2 / math.pi), rel=0.08)
    assert np.abs(values - truth)[rows].mean() > 1.3 * error


def plain_mix(said: np.ndarray, errors: np.ndarray, horizon: int) -> float:
    """Weighted median of the last row; the error of row r is known when hour r + horizon is over."""
    now = len(said) - 1
    known = errors[max(now - horizon + 1 - mix.WINDOW_H, 0) : max(now - horizon + 1, 0)]
    averages = [mean(known[:, k].tolist()) for k in range(said.shape[1])]
    usable = [each for each in averages if not math.isnan(each)]
    weights = []
    for average, voice in zip(averages, said[now], strict=True):
        if math.isnan(voice):
            weights.append(0.0)
        elif not usable:
            weights.append(1.0)
        elif math.isnan(average):
            weights.append(0.0)
        else:
            weights.append(math.exp(-mix.SHARPNESS * ((average + 1e-6) / (min(usable) + 1e-6) - 1)))
    run = 0.0
    for voice, weight in sorted(zip(said[now].tolist(), weights, strict=True)):
        run += weight
        if run >= sum(weights) / 2 - 1e-12:
            return voice
    return math.nan


@pytest.mark.parametrize("horizon", [1, 30])
def test_the_mix_agrees_with_plain_python(horizon):
    rng = np.random.default_rng(5)
    truth = rng.normal(50, 10, 900)
    said = truth[:, None] + rng.normal(0, [1.0, 1.2, 6.0, 2.0], (900, 4))
    said[:100, 3] = np.nan  # a learner that comes later
    errors = np.abs(said - targets(truth, horizon)[:, None])
    found = mix._weighted_median(said, mix._weights(errors, horizon))
    for row in (0, 40, 120, 650, 899):
        assert found[row] == pytest.approx(plain_mix(said[: row + 1], errors[: row + 1], horizon))


def test_appending_the_future_changes_no_forecast_and_no_quantile():
    values = wavy(1500)
    whole = backtest_demand(table(values), split=900 / 1500, horizons_h=(1, 24)).forecasts
    cut = backtest_demand(table(values[:1200]), split=900 / 1200, horizons_h=(1, 24)).forecasts
    both = cut.join(whole, on=["horizon_h", "origin_time"], suffix="_whole", maintain_order="left")
    assert both.height == cut.height == 2 * 300 - 25
    for name in ("predicted", "predicted_p10", "predicted_p90", "last", "daily", "weekly", "choice"):
        assert both[name].equals(both[f"{name}_whole"])


def test_a_backtest_says_what_the_forecaster_would_have_said():
    values = wavy(2500, seed=2)
    found = backtest_demand(table(values), split=2350 / 2500, horizons_h=(30,)).forecasts
    for place in (2350, 2469):
        model = DemandForecaster(horizons_h=(30,)).fit(table(values[: place + 1]))
        said = model.predict(quantiles=[0.1, 0.9])
        then = found.filter(pl.col("origin_time") == model.origin_)
        assert said["time"].to_list() == then["time"].to_list()
        for name in ("predicted", "predicted_p10", "predicted_p90"):
            assert said[name].to_list() == pytest.approx(then[name].to_list())
        assert list(model.choice_.values()) == then["choice"].to_list()


def test_same_input_same_forecast_whatever_the_row_order():
    series = table(wavy(600))
    assert DemandForecaster().get_params() == {"horizons_h": (1, 6, 24, 168), "refit": "weekly"}
    model = DemandForecaster(horizons_h=(3,))
    assert model.fit(series) is model
    assert clone(model).get_params() == model.get_params()
    first = model.predict()
    assert clone(model).fit(series.sample(fraction=1, shuffle=True, seed=1)).predict().equals(first)
    assert clone(model).fit(series.to_pandas()).predict().equals(first)


def test_quantiles_by_hand():
    # 19 errors -9 .. 9: (19 + 1) x 0.1 = 2nd smallest, 20 x 0.9 = 18th, 20 x 0.95 = 19th, 20 x 0.99 -> the largest.
    known = np.arange(-9.0, 10.0)
    assert mix._shifts(known, np.array([0.1, 0.5, 0.9, 0.95, 0.99])).tolist() == [-8.0, 0.0, 8.0, 9.0, 9.0]
    # A forecast that was always too low is not moved down by its own p10.
    assert mix._shifts(known + 20, np.array([0.1, 0.9])).tolist() == [0.0, 28.0]


def test_quantiles_cover_what_they_promise_where_hours_are_alike():
    rng = np.random.default_rng(8)
    found = backtest_demand(table(rng.normal(200, 10, 3000)), split=0.4, horizons_h=(24,)).scores
    for row in found.to_dicts():
        # 1,800 hours, a window of 672 errors: a standard error of about 0.02.
        assert row["coverage"] == pytest.approx(0.8, abs=0.05)
        assert row["width"] == pytest.approx(2 * 1.2816 * 10, rel=0.1)


def test_quantiles_never_cross_and_never_fall_below_zero():
    levels = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
    values = np.maximum(wavy(900, seed=4) - 90, 0)
    said = DemandForecaster().fit(table(values)).predict(quantiles=levels)
    columns = [
        "predicted_p5",
        "predicted_p10",
        "predicted_p25",
        "predicted_p50",
        *(f"predicted_p{p}" for p in (75, 90, 95)),
    ]
    spread = said.select(columns).to_numpy()
    assert (np.diff(spread, axis=1) >= 0).all()
    assert (spread >= 0).all()
    assert said["predicted_p50"].equals(said["predicted"].alias("predicted_p50"))


def test_the_guard_takes_a_rule_that_was_surely_better():
    # The mix was off by 5, the last value by 1, day for day: only before the first start is nothing known.
    truth = np.full(800, 50.0)
    mixed, simple = truth + 5, np.column_stack([truth + 1, truth + 2, truth + 9])
    starts = [0, 700]
    choice = mix._guard(mixed, simple, targets(truth, 1), 1, starts)
    assert (choice[:700] == -1).all()
    assert (choice[700:] == 0).all()
    even = mix._guard(truth + 1, simple, targets(truth, 1), 1, starts)
    assert (even == -1).all()


def test_a_perfect_rhythm_is_forecast_without_error():
    hours = np.arange(70 * 24)
    values = 10 + (hours % 24) + 100 * ((hours // 24) % 7 >= 5)
    found = backtest_demand(table(values), horizons_h=(1, 6, 24, 168)).scores
    assert found["mae_weekly"].to_list() == [0.0] * 4
    assert found["mae"].to_list() == [0.0] * 4
    assert found["baseline"].to_list() == ["weekly"] * 3 + ["daily"]  # 168 hours ahead both are the same hour
    assert found["skill"].to_list() == [None] * 4


def test_scores_are_those_of_the_forecasts_and_skip_what_is_missing():
    values = wavy(1000, seed=6)
    result = backtest_demand(table(values), horizons_h=(6,))
    row = result.scores.to_dicts()[0]
    rows = [each for each in result.forecasts.to_dicts() if each["value"] is not None]
    assert row["num_hours"] == len(rows) == 394 - np.isnan(values[606:]).sum()
    average = lambda name: mean([abs(each[name] - each["value"]) for each in rows])  # noqa: E731
    assert row["mae"] == pytest.approx(average("predicted"))
    for name in ("last", "daily", "weekly"):
        assert row[f"mae_{name}"] == pytest.approx(average(name))
    assert row["baseline"] == "daily"
    assert row["skill"] == pytest.approx(1 - row["mae"] / row["mae_daily"])
    assert row["difference"] == pytest.approx(row["mae"] - row["mae_daily"])
    assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    inside = [each["predicted_p10"] <= each["value"] <= each["predicted_p90"] for each in rows]
    assert row["coverage"] == pytest.approx(mean([float(each) for each in inside]))


def test_a_week_ahead_on_a_short_test_part_has_no_interval():
    row = backtest_demand(table(wavy(1500)), horizons_h=(168,)).scores.to_dicts()[0]
    assert (row["difference_low"], row["difference_high"]) == (None, None)
    assert row["verdict"] == "too few weeks"


@pytest.mark.parametrize(
    ("values", "expected"),
    [([7.0], 7.0), ([3.0] * 900, 3.0), ([np.nan, 4.0, np.nan, np.nan, 6.0], 6.0), ([0.0] * 500, 0.0)],
    ids=["one value", "constant", "holes", "zero"],
)
def test_short_and_constant_series_are_forecast_by_what_is_known(values, expected):
    said = DemandForecaster(horizons_h=(1, 168)).fit(table(values)).predict()
    if len(values) > 10:
        assert said["predicted"].to_list() == [expected] * 2
        assert said["predicted_p10"].to_list() == said["predicted_p90"].to_list() == [expected] * 2
    else:
        assert (said["predicted"] > 0).all()
        # Nothing is known of how far forecasts are off: that is not a width of 0.
        assert said["predicted_p10"].to_list() == said["predicted_p90"].to_list() == [None] * 2


def test_what_does_not_fit_is_one_sentence():
    good = table([1.0] * 50)
    for wrong in ((), (0,), (1.5,), (1, 1), (673,)):
        with pytest.raises(UsageError, match="expected different whole hours from 1 to 672"):
            DemandForecaster(horizons_h=wrong).fit(good)
    with pytest.raises(UnknownNameError, match="no refit of a demand forecast is named 'hourly'"):
        DemandForecaster(refit="hourly").fit(good)
    with pytest.raises(HindcastError, match="none of 3 rows"):
        DemandForecaster().fit(table([np.nan] * 3))
    with pytest.raises(UsageError, match="split is 1.5"):
        backtest_demand(good, split=1.5)
    with pytest.raises(UsageError, match="no hour lies 24 hours after the split"):
        backtest_demand(good, horizons_h=(24,))
    with pytest.raises(NotFittedError):
        DemandForecaster().predict()
    with pytest.raises(UsageError, match="between 0 and 1"):
        DemandForecaster(horizons_h=(1,)).fit(good).predict(quantiles=[90])


@pytest.mark.full_trace
def test_on_philly_it_is_better_than_seasonal_naive(real_data):
    nodes = pl.read_csv(real_data("philly/philly_active_nodes.csv.gz"), try_parse_dates=True)
    hourly = nodes.group_by(pl.col("time").dt.truncate("1h")).agg(pl.col("active").mean()).sort("time")
    found = backtest_demand(hourly.rename({"active": "value"}), horizons_h=(1, 6, 24))
    # The naive forecasts, worked out apart: the hour h before, and the same hour of the days before.
    tested = hourly.upsample("time", every="1h")[int(0.6 * 1771) :]
    for row in found.scores.to_dicts():
        ago = tested.with_columns(last=pl.col("active").shift(row["horizon_h"])).drop_nulls()
        assert row["mae_last"] == pytest.approx((ago["active"] - ago["last"]).abs().mean())
    by_horizon = {row["horizon_h"]: row for row in found.scores.to_dicts()}
    assert all(by_horizon[h]["difference_high"] < 0 for h in (1, 6))
    assert by_horizon[24]["difference"] < 0
    assert all(row["last_difference_low"] <= 0 for row in by_horizon.values())
