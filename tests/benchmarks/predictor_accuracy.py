"""How far predictions of the default predictor are off on real logs, with weekly refits and the past only.

    python -m tests.benchmarks.predictor_accuracy kth -o kth.json

The log is split at the submission of the job at 60 % of the jobs. From then on the predictor is fitted anew every
seven days to what was known by then, and predicts the jobs that are submitted (or, at the start, that start) in that
week, each with the history of jobs that had ended before the instant. Beside it stand the four rules that it must not
fall behind. ``--from`` and ``--to`` choose another window, such as one inside the first 60 % during development.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from analysis import schema
from analysis.loaders import load
from predictors import make_predictor, training_view
from predictors.asking import asked_at
from predictors.expert_rules import SIMPLE, View, wide_log
from predictors.jobs_table import as_jobs, is_known

#: Loader and file below the data folder, and which jobs of it.
LOGS = {
    "kth": ("swf", "swf/KTH-SP2-1996-2.swf.gz", None),
    "ricc": ("swf", "swf/RICC-2010-2.swf.gz", None),
    "philly": ("auto", "philly/philly_jobs.csv.gz", None),
    "graham_cpu": ("auto", "slurm/graham_jobs.csv.gz", pl.col("num_gpus") == 0),
    "graham_gpu": ("auto", "slurm/graham_jobs.csv.gz", pl.col("num_gpus") > 0),
    "supercloud": ("mit_supercloud", "mit_supercloud/slurm-log-clean.csv", pl.col("num_gpus") > 0),
    "thetagpu": ("auto", "slurm/thetagpu_jobs.csv", None),
}
WEEK = timedelta(days=7)
DRAWS = 4000


def read_log(name: str, folder: Path) -> pl.DataFrame:
    """Jobs of a log with known durations, in order of submission."""
    loader, file, which = LOGS[name]
    jobs = as_jobs(load(loader, [folder / file]).jobs)
    jobs = jobs if which is None else jobs.filter(which)
    return schema.sort_jobs(jobs.filter(is_known() & pl.col("submit_time").is_not_null()))


def weekly(name: str, jobs: pl.DataFrame, test: pl.DataFrame, *, ats: list[str], params: dict) -> dict:
    """Predictions of log(1 + s) of the test jobs by instant of asking, refitted every week; one model grows along."""
    asked = {at: asked_at(test, at)["asked_time"] for at in ats}
    begin, said = test["submit_time"].min(), {at: np.full(test.height, np.nan) for at in ats}
    model = make_predictor(name, **params)
    while begin <= max(times.max() for times in asked.values()):
        week = {at: ((times >= begin) & (times < begin + WEEK)).to_numpy() for at, times in asked.items()}
        if any(rows.any() for rows in week.values()):
            model.fit(training_view(jobs, cutoff=begin))
            seen = jobs.filter(pl.col("submit_time") < begin + WEEK)
            for at, rows in week.items():
                said[at][rows] = np.log1p(model.predict(test.filter(rows), history=seen, at=at))
            sys.stderr.write(f"{begin} {int(week[ats[0]].sum())} jobs {getattr(model, 'choice_', '')}\n")
        begin += WEEK
    return said


def simple_rules(jobs: pl.DataFrame, test: pl.DataFrame, *, at: str) -> dict[str, np.ndarray]:
    fallback = float(np.log1p(training_view(jobs, cutoff=test["submit_time"].min())["duration_s"].median()))
    view = View(wide_log(jobs), asked_at(test, at), fallback=fallback, failures="keep", time_zone="UTC")
    return {name: view.rules[name] for name in SIMPLE}


def batches(test: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Weight of each job so that every batch weighs one; and its owner's number."""
    owner = test.select(owner=pl.coalesce("user", "account", "vc"))["owner"].fill_null("")
    minute = pl.col("submit_time").dt.epoch("us") // 60_000_000
    keys = test.select(minute, "num_gpus", "num_cpus", "time_limit_s").with_columns(owner)
    size = keys.select(pl.len().over(keys.columns)).to_series().to_numpy()
    return 1 / size, owner.rank("dense").to_numpy().astype(int)


def interval(difference: np.ndarray, weight: np.ndarray, cluster: np.ndarray) -> list[float]:
    """95 % interval of the weighted mean, clusters (days or owners) drawn anew."""
    _, place = np.unique(cluster, return_inverse=True)
    total, mass = np.bincount(place, weights=difference * weight), np.bincount(place, weights=weight)
    drawn = np.random.default_rng(0).integers(0, len(total), (DRAWS, len(total)))
    means = total[drawn].sum(axis=1) / mass[drawn].sum(axis=1)
    return [round(float(np.quantile(means, q)), 3) for q in (0.025, 0.975)]


def report(test: pl.DataFrame, said: list[np.ndarray], rules: dict[str, np.ndarray]) -> dict:
    truth = np.log1p(test["duration_s"].to_numpy())
    per_batch, owner = batches(test)
    day = test["submit_time"].dt.epoch("d").to_numpy()
    found: dict = {"num_test": test.height, "num_batches": round(float(per_batch.sum()), 1)}
    for kind, weight in (("job", np.ones(test.height)), ("batch", per_batch)):
        mean = lambda values, weight=weight: float(np.average(values, weights=weight))  # noqa: E731
        seeds = [mean(np.abs(each - truth)) for each in said]
        error = np.mean([np.abs(each - truth) for each in said], axis=0)
        others = {name: mean(np.abs(values - truth)) for name, values in rules.items()}
        best = min(others, key=others.__getitem__)
        gap = error - np.abs(rules[best] - truth)
        found[kind] = {
            "log_mae": round(float(np.mean(seeds)), 4),
            "sd_of_seeds": round(float(np.std(seeds, ddof=1)), 4) if len(seeds) > 1 else None,
            "rules": {name: round(value, 4) for name, value in others.items()},
            "best_rule": best,
            "difference": round(mean(gap), 4),
            "by_days": interval(gap, weight, day),
            "by_owners": interval(gap, weight, owner),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", choices=LOGS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="guarded")
    parser.add_argument("--learner", default="auto")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--from", dest="first", type=float, default=0.6)
    parser.add_argument("--to", dest="last", type=float, default=1.0)
    parser.add_argument("--at", nargs="+", default=["submission", "start"])
    parser.add_argument("--keep", type=Path, help="folder in which predictions of a seed are kept and found again")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    jobs = read_log(given.log, given.data)
    if given.last < 1:  # what ends later is not looked at
        stop = jobs["submit_time"][int(given.last * jobs.height)]
        jobs = training_view(jobs, cutoff=stop)
        jobs = jobs.filter(is_known())
    cutoff = jobs["submit_time"][int(given.first / given.last * jobs.height)]
    test = jobs.filter(pl.col("submit_time") >= cutoff)
    result: dict = {"log": given.log, "model": given.model, "cutoff": str(cutoff)}
    ats = given.at if test["start_time"].null_count() < test.height else ["submission"]
    rules = {at: simple_rules(jobs, test, at=at) for at in ats}
    said: dict[str, list[np.ndarray]] = {at: [] for at in ats}
    for seed in range(given.seeds):
        params = {"failures": "keep"}
        if given.model == "guarded":
            params |= {"random_state": seed, "warm_start": True, "learner": given.learner}
        for at, values in kept(
            given, seed, lambda p=params: weekly(given.model, jobs, test, ats=ats, params=p)
        ).items():
            said[at].append(values)
    result |= {at: {**report(test, said[at], rules[at]), "num_seeds": given.seeds} for at in ats}
    if given.output:
        given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def kept(given: argparse.Namespace, seed: int, make: Callable[[], dict]) -> dict:
    """Predictions of a seed, from the folder if they are there."""
    if given.keep is None:
        return make()
    file = given.keep / f"{given.log}_{given.model}_{given.learner}_{given.first}_{given.last}_{seed}.npz"
    if not file.exists():
        begin = time.process_time()
        made = make()
        given.keep.mkdir(parents=True, exist_ok=True)
        np.savez(file, **made)
        sys.stderr.write(f"seed {seed}: {time.process_time() - begin:.0f} CPU s\n")
    return dict(np.load(file))


if __name__ == "__main__":
    main()
