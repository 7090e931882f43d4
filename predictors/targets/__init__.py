"""More to predict than durations: what a cluster will need, whether a job will fail, how long it will wait."""

from predictors.targets.demand import DemandForecaster
from predictors.targets.demand_backtest import DemandBacktest, backtest_demand
from predictors.targets.demand_series import busy_gpus, demand_series
from predictors.targets.outcome_backtest import OutcomeBacktest, backtest_outcome
from predictors.targets.outcome_model import OutcomeProbability, OutcomeRate
from predictors.targets.outcomes import OUTCOMES, outcomes_of
from predictors.targets.queueing_delay import (
    WAIT_MODELS,
    LastHourWait,
    LastWait,
    QueueingDelay,
    UserWait,
    backtest_queueing_delay,
)
from predictors.targets.waits import waits_of, waits_view

__all__ = [
    "OUTCOMES",
    "WAIT_MODELS",
    "DemandBacktest",
    "DemandForecaster",
    "LastHourWait",
    "LastWait",
    "OutcomeBacktest",
    "OutcomeProbability",
    "OutcomeRate",
    "QueueingDelay",
    "UserWait",
    "backtest_demand",
    "backtest_outcome",
    "backtest_queueing_delay",
    "busy_gpus",
    "demand_series",
    "outcomes_of",
    "waits_of",
    "waits_view",
]
