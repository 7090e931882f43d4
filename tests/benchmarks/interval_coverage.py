"""How often 80 % intervals of the default predictor hold on real logs, with weekly refits and the past only.

    python -m tests.benchmarks.interval_coverage kth -o kth.json

Protocol of ``predictor_accuracy``: split at the job at 60 % of the jobs, a refit every seven days, history of jobs that
had ended before each instant. Whether an interval held is told when the job ends: jobs asked about meanwhile know
nothing of it. Several calibrations of the same predictions can stand side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors import make_predictor, training_view
from predictors.asking import asked_at, instants
from predictors.base import DurationPredictor
from predictors.feedback import stream_for
from predictors.jobs_table import is_known, microseconds
from tests.benchmarks.predictor_accuracy import LOGS, WEEK, batches, read_log

Numbers = NDArray[np.float64]
LEVELS = np.array([0.1, 0.5, 0.9])
#: A week counts with so many jobs, and with this share of a mean week; a user with so many.
LEAST_IN_WEEK = 100
LEAST_SHARE = 0.2
LEAST_OF_USER = 20


def weekly_quantiles(
    model: DurationPredictor, jobs: pl.DataFrame, test: pl.DataFrame, *, at: str, methods: list[str]
) -> dict[str, Numbers]:
    """Quantiles of log(1 + s) of the test jobs by calibration, shape (jobs, levels); fitted anew every week."""
    asked = asked_at(test, at)["asked_time"]
    begin, said = test["submit_time"].min(), {name: np.full((test.height, len(LEVELS)), np.nan) for name in methods}
    while begin <= asked.max():
        rows = ((asked >= begin) & (asked < begin + WEEK)).to_numpy()
        if rows.any():
            model.fit(training_view(jobs, cutoff=begin))
            history = jobs.filter(pl.col("submit_time") < begin + WEEK)
            table, past = asked_at(test.filter(rows), at), model._past_of(history)
            raw, until_us = model._raw(table, past), int(microseconds(instants(table))[0].max())
            stream = stream_for(model, history, past=past, at=at, until_us=until_us)
            for name in methods:
                spread = model._calibrated(table, raw, stream, method=name)
                said[name][rows] = np.log1p(spread.quantiles(LEVELS))
            sys.stderr.write(f"{begin} {int(rows.sum())} jobs, {time.process_time():.0f} CPU s\n")
        begin += WEEK
    return said


def pinball(truth: Numbers, said: Numbers) -> float:
    """Sum over the levels of the mean pinball losses."""
    error = truth[:, None] - said
    return float(np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=0).sum())


def report(test: pl.DataFrame, said: Numbers) -> dict[str, object]:
    """Scores of the intervals from the first to the last level."""
    truth = np.log1p(test["duration_s"].to_numpy())
    covered = (truth >= said[:, 0] - 1e-9) & (truth <= said[:, -1] + 1e-9)
    per_batch, owner = batches(test)
    span = test["submit_time"] - test["submit_time"].min()
    week = (span.dt.total_microseconds() // int(WEEK.total_seconds() * 1e6)).to_numpy()
    in_week = np.bincount(week)
    weekly = np.bincount(week, weights=covered) / np.maximum(in_week, 1)
    counts = in_week >= max(LEAST_IN_WEEK, LEAST_SHARE * test.height / len(in_week))
    of_user = np.bincount(owner)
    users = (np.bincount(owner, weights=covered) / np.maximum(of_user, 1))[of_user >= LEAST_OF_USER]
    return {
        "coverage": round(float(covered.mean()), 4),
        "coverage_of_batches": round(float(np.average(covered, weights=per_batch)), 4),
        "worst_week": round(float(weekly[counts].min()), 4),
        "weeks": [[int(n), round(float(share), 3)] for n, share in zip(in_week, weekly, strict=True)],
        "mean_width": round(float((said[:, -1] - said[:, 0]).mean()), 3),
        "median_width": round(float(np.median(said[:, -1] - said[:, 0])), 3),
        "pinball": round(pinball(truth, said), 4),
        "below": round(float((truth < said[:, 0] - 1e-9).mean()), 4),
        "above": round(float((truth > said[:, -1] + 1e-9).mean()), 4),
        "user_deciles": [round(float(np.quantile(users, q / 10)), 3) for q in range(11)] if len(users) else [],
        "num_users": len(users),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", choices=LOGS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="guarded")
    parser.add_argument("--calibrations", nargs="+", default=["alike", "owner", "rolling"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", dest="first", type=float, default=0.6)
    parser.add_argument("--to", dest="last", type=float, default=1.0)
    parser.add_argument("--at", default="submission")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    jobs = read_log(given.log, given.data)
    if given.last < 1:  # what ends later is not looked at
        jobs = training_view(jobs, cutoff=jobs["submit_time"][int(given.last * jobs.height)]).filter(is_known())
    test = jobs.filter(pl.col("submit_time") >= jobs["submit_time"][int(given.first / given.last * jobs.height)])
    result: dict[str, object] = {"log": given.log, "model": given.model, "at": given.at, "num_test": test.height}
    for seed in range(given.seeds):
        params = {"failures": "keep"}
        if given.model == "guarded":
            params |= {"random_state": seed, "warm_start": True}
        model = make_predictor(given.model, **params)
        said = weekly_quantiles(model, jobs, test, at=given.at, methods=given.calibrations)
        result[f"seed {seed}"] = {name: report(test, values) for name, values in said.items()}
    text = json.dumps(result, indent=1) + "\n"
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
