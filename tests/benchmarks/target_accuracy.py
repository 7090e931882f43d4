"""How good predictions of queueing delays and of outcomes are on real logs, with weekly refits and the past only.

    python -m tests.benchmarks.target_accuracy wait kth
    python -m tests.benchmarks.target_accuracy ends_early graham_gpu --to 0.6

The log is split at the submission of the job at 60 % of the jobs. ``--to 0.6`` looks at the log as it was known when
60 % of its jobs had come: the part on which the predictors were developed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import polars as pl

from analysis import schema
from analysis.loaders import load
from predictors import training_view
from predictors.jobs_table import as_jobs
from predictors.targets import OUTCOMES, backtest_outcome, backtest_queueing_delay, waits_view
from tests.benchmarks.predictor_accuracy import LOGS

WAITS = ("model", "num_test", "log_mae", "log_mae_batch", "within_2x", "spearman", "coverage", "worst_week_coverage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=["wait", *OUTCOMES])
    parser.add_argument("log", choices=LOGS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--refit", default="weekly")
    parser.add_argument("--calibration", default="platt")
    parser.add_argument("--to", dest="last", type=float, default=1.0)
    given = parser.parse_args()
    loader, file, which = LOGS[given.log]
    jobs = schema.sort_jobs(as_jobs(load(loader, [given.data / file]).jobs))
    jobs = jobs if which is None else jobs.filter(which)
    if given.last < 1:
        view = waits_view if given.target == "wait" else training_view
        jobs = view(jobs, cutoff=jobs["submit_time"][int(given.last * jobs.height)])
    options = {"refit": given.refit, "gpu_jobs_only": False}
    if given.target == "wait":
        result = backtest_queueing_delay(jobs, by=(), **options)
        tables = [result.scores.select(WAITS), result.differences.filter(pl.col("model") == "queueing_delay")]
    else:
        found = backtest_outcome(jobs, outcome=given.target, calibration=given.calibration, **options)
        tables = [found.scores, found.differences, found.curve.filter(pl.col("model") == "model")]
    for table in tables:
        sys.stdout.write(table.write_csv(float_precision=4) + "\n")


if __name__ == "__main__":
    main()
