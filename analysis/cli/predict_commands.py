"""Commands around predictors: backtest, train, predict."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from analysis.cli.app import JsonOption, app, progress, refuse_inside, say, show_table, split_names, staged, write_json
from analysis.errors import BadFileError, UsageError

if TYPE_CHECKING:
    from analysis.trace import Trace
    from predictors import BacktestResult, DurationPredictor

__all__ = ["backtest", "predict", "train"]

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")]
MARKER = "scores.json"
#: Figures of a backtest, and the columns of its scores that a terminal has room for.
FIGURES = (
    *("predictor_scores", "prediction_errors", "calibration_curve", "error_by_window"),
    *("importance", "shape_limit", "shape_gpus", "shape_hour"),
)
SHOWN = (
    "model",
    "num_test",
    "log_mae",
    "log_mae_low",
    "log_mae_high",
    "log_mae_batch",
    "within_2x",
    "coverage",
    "c_index",
)
WRITERS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@app.command()
def backtest(
    trace_folder: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for scores and predictions.")],
    *,
    models: Annotated[str | None, typer.Option(help="Predictors, commas between; by default all.")] = None,
    split: Annotated[float, typer.Option(min=0.05, max=0.95, help="Share of the jobs before the test part.")] = 0.6,
    refit: Annotated[str, typer.Option(help="How often models learn again: never, daily, weekly.")] = "never",
    at: Annotated[str, typer.Option(help="When models are asked: submission, start, or a column of times.")] = (
        "submission"
    ),
    by: Annotated[str, typer.Option(help="Also score by these: window, size, user_age, status; or none.")] = (
        "window,size,user_age,status"
    ),
    calibration: Annotated[
        str, typer.Option(help="Calibration of intervals: alike, owner, owner_running, rolling, adaptive, split, none.")
    ] = "alike",
    random_split: Annotated[
        bool, typer.Option("--random-split", help="Also show how much a random split would flatter.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also say what the best predictor needs, and how it answers to a request.")
    ] = False,
    cpu_jobs: Annotated[bool, typer.Option("--cpu-jobs", help="Learn from and predict jobs without GPUs too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fits and of the bootstrap.")] = 0,
    json_to: JsonOption = None,
) -> None:
    """Score predictors on the last part of a Trace, each knowing only what had ended before.

    Example: hindcast backtest philly --models guarded,vc_gpus_median --refit weekly -o scores
    """
    from analysis.trace import Trace
    from predictors import backtest as run
    from predictors import compare_splits, default_models, explain_backtest

    trace = Trace.read(trace_folder)
    names = split_names(models, option="--models") if models else default_models(trace.jobs)
    shared: dict[str, Any] = {"time_zone": trace.meta.time_zone, "random_state": seed, "gpu_jobs_only": not cpu_jobs}
    shared["split"] = split
    groups = [] if by == "none" else split_names(by, option="--by")
    options = {"refit": refit, "at": at, "calibration": calibration, **shared}
    with progress("scoring predictors", total=len(names)) as step:
        result = run(trace.jobs, models=names, by=groups, progress=step, **options)
    more = {"splits": compare_splits(trace.jobs, models=names, **shared)} if random_split else {}
    if explain:
        with progress("explaining the best predictor"):
            more |= explain_backtest(trace.jobs, result)
    _write_backtest(result, more, output)
    show_table(result.scores.select(SHOWN).to_dicts(), json_to=json_to)
    for note in [*result.notes, *_verdicts(result.differences)]:
        say(f"note: {note}", json_to=json_to)
    write_json(result.scores.to_dicts(), json_to)
    say(f"Scores, predictions and figures written to {output}", json_to=json_to)


def _write_backtest(result: BacktestResult, more: dict[str, pl.DataFrame], output: Path) -> None:
    """Write tables as Parquet and CSV, and the figures."""
    from analysis.plots import write_figures
    from analysis.trace import write_folder

    tables = {"scores": result.scores, "scores_by": result.by, "differences": result.differences}
    tables |= {"calibration_curve": result.curve, "timings": result.timings}
    tables |= more

    def fill(folder: Path) -> None:
        for name, table in tables.items():
            table.write_parquet(folder / f"{name}.parquet")
            table.write_csv(folder / f"{name}.csv")
        result.predictions.write_parquet(folder / "predictions.parquet")
        write_json(result.scores.to_dicts(), folder / MARKER)
        (folder / "figures").mkdir()
        write_figures({**tables, "predictions": result.predictions}, folder / "figures", names=FIGURES)

    write_folder(output, fill, marker=MARKER)


def _verdicts(differences: pl.DataFrame) -> list[str]:
    """Sentences about the best model against each other one."""
    if not differences.height or (best := differences["model"][0]) is None:
        return []
    rows = differences.filter(pl.col("model") == best).to_dicts()
    return [
        f"{best} against {row['other']}: {row['verdict']} (log-MAE {row['log_mae_difference']:+.3f})." for row in rows
    ]


@app.command()
def train(
    trace_folder: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL", help="Model folder to write.")],
    *,
    model: Annotated[str, typer.Option(help="Which predictor.")] = "guarded",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Know only what had ended by then.")] = None,
    cpu_jobs: Annotated[bool, typer.Option("--cpu-jobs", help="Learn from jobs without GPUs too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fit.")] = 0,
) -> None:
    """Fit a predictor on the GPU jobs of a Trace, as a backtest does, and store it, without pickle.

    Example: hindcast train philly --model guarded --until 2017-11-01 -o model
    """
    from analysis.trace import Trace
    from predictors import make_predictor, save_model, training_view

    trace = Trace.read(trace_folder)
    jobs = trace.jobs if cpu_jobs else trace.jobs.filter(pl.col("num_gpus") > 0)
    if not jobs.height:
        msg = f"{trace_folder}: none of its {trace.jobs.height} jobs has a GPU; --cpu-jobs learns from the others too."
        raise UsageError(msg)
    if until is not None:
        jobs = training_view(jobs, cutoff=_instant(until, trace))
    predictor = make_predictor(model)
    given = {"random_state": seed, "time_zone": trace.meta.time_zone}
    predictor.set_params(**{key: value for key, value in given.items() if key in predictor.get_params()})
    with progress(f"fitting {model} on {jobs.height:,} jobs"):
        predictor.fit(jobs)
        save_model(predictor, output)
    say(f"Model {model} written to {output}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="Jobs: a Trace folder, Parquet, CSV or JSONL.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Parquet, CSV or JSONL to write.")
    ] = None,
    *,
    at: Annotated[str, typer.Option(help="When it is asked: submission, start, or a column of times.")] = "submission",
    explain: Annotated[
        str | None, typer.Option(metavar="JOB_ID", help="Say which history moved the prediction of this job.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Add predicted_duration_s and predicted_p10_s, p50, p90 to jobs, each as of its submission (or --at).

    History is that of JOBS if some of them have ended, and else that of the training log.

    Example: hindcast predict model philly -o predicted.parquet

    Example: hindcast predict model philly --explain application_1506638472019_13421
    """
    from predictors import load_model

    kind = _asked_kind(output, explain=explain, json_to=json_to)
    for target in (output, json_to):
        if target is not None:
            refuse_inside(target, given=(model, jobs))
    predictor = load_model(model)
    frame = _read_jobs(jobs)
    if explain is not None:
        _explain(predictor, frame, explain, at=at, json_to=json_to)
    if output is not None:
        _predict_all(predictor, frame, output, at=at, kind=kind, json_to=json_to)


def _asked_kind(output: Path | None, *, explain: str | None, json_to: Path | None) -> str:
    """Format of the file to write, by its ending; empty where none is asked for."""
    if output is None and explain is None:
        msg = "predict: found neither -o FILE nor --explain JOB_ID; give a file for all predictions, or one job."
        raise UsageError(msg)
    if json_to is not None and explain is None:
        msg = "--json: found without --explain; it takes an explanation (-o FILE.jsonl writes predictions)."
        raise UsageError(msg)
    if output is None:
        return ""
    kind = WRITERS.get(output.suffix.lower())
    if kind is None:
        msg = f"{output}: the ending {output.suffix!r} names no format; expected one of {', '.join(WRITERS)}."
        raise UsageError(msg)
    return kind


def _history(frame: pl.DataFrame) -> pl.DataFrame | None:
    """The past of the jobs themselves; jobs that only just came have none: null, then that of the training log is."""
    from predictors.history import ended_jobs

    return frame if ended_jobs(frame).height else None


def _explain(predictor: DurationPredictor, frame: pl.DataFrame, job_id: str, *, at: str, json_to: Path | None) -> None:
    from predictors import explain_job

    with progress(f"explaining job {job_id}"):
        why = explain_job(predictor, frame, job_id, history=_history(frame), at=at)
    say(str(why), json_to=json_to)
    write_json(why.to_dict(), json_to)


def _predict_all(
    predictor: DurationPredictor, frame: pl.DataFrame, output: Path, *, at: str, kind: str, json_to: Path | None
) -> None:
    from predictors import predict_frame

    predicted = predict_frame(predictor, frame, history=_history(frame), at=at)
    with staged(output) as staging:
        _write(predicted, staging, kind)
    say(f"{predicted.height:,} predictions written to {output}", json_to=json_to)


def _read_jobs(path: Path) -> pl.DataFrame:
    """Read jobs to be predicted: a Trace, or a file with columns named as in the jobs table."""
    from analysis.loaders import load
    from analysis.trace import Trace

    if path.is_dir():
        return Trace.read(path).jobs
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        if not path.exists():
            raise BadFileError(path, kind="missing", found="nothing there", expected="JSONL", fix="Check the name.")
        return load("table", pl.read_ndjson(path)).jobs
    return load("table", path).jobs


def _write(frame: pl.DataFrame, path: Path, kind: str) -> None:
    if kind == "parquet":
        frame.write_parquet(path)
        return
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    if kind == "csv":
        # A CSV cell holds no list and no struct; what is nested stays behind.
        frame.drop(nested).write_csv(path)
        return
    frame.with_columns(pl.col(pl.Datetime).dt.to_string("iso")).write_ndjson(path)


def _instant(text: str, trace: Trace) -> datetime:
    """Read an ISO instant; without an offset it is in the trace's own zone."""
    from zoneinfo import ZoneInfo

    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"--until {text!r}: not an ISO time; expected e.g. 2017-11-01 or 2017-11-01T08:00:00+00:00."
        raise UsageError(msg) from error
    return value if value.tzinfo else value.replace(tzinfo=ZoneInfo(trace.meta.time_zone))
