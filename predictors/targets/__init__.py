"""More to predict than durations: what a cluster will need, whether a job will fail, how long it will wait."""

from predictors.targets.demand import DemandForecaster
from predictors.targets.demand_backtest import DemandBacktest, backtest_demand
from predictors.targets.demand_series import busy_gpus, demand_series

__all__ = [
    "DemandBacktest",
    "DemandForecaster",
    "backtest_demand",
    "busy_gpus",
    "demand_series",
]
