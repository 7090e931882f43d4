"""The GPU jobs of a jobs table in replay order, as integers: microseconds and milli-GPUs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl

from analysis import schema
from analysis.errors import NoTimelineError, SchemaError, UnknownNameError
from analysis.replay._bits import I64

US: Final = 1_000_000
MILLI: Final = 1000
#: Longer times count as this long (31 years), so that instants stay far from the end of 64 bits. [us]
LONGEST_US: Final = 10**15
NEEDED: Final = ("job_id", "submit_time", "num_gpus", "duration_s")
OPTIONAL: Final = (
    *("vc", "gpu_type", "allowed_gpu_types", "num_tasks", "is_single_node", "censoring", "num_cpus", "mem_gib"),
)


def gpu_jobs(jobs: pl.DataFrame, *, columns: Collection[str]) -> tuple[pl.DataFrame, int]:
    """GPU jobs in the order (submit_time, job_id) with the columns that a replay reads.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        In any order.
    columns : collection of str
        Further columns that are needed.

    Returns
    -------
    jobs : DataFrame
        Missing optional columns are null.
    num_cpu_jobs : int
        Jobs of 0 GPUs, left out.

    Raises
    ------
    SchemaError
        If a column is missing or holds impossible values.
    NoTimelineError
        If a GPU job has no submission time.
    """
    missing = [name for name in (*NEEDED, *columns) if name not in jobs.columns]
    if missing:
        raise SchemaError(
            table="jobs", violations=[f"column {name!r} is missing; a replay reads it" for name in missing]
        )
    present = [name for name in OPTIONAL if name in jobs.columns]
    wanted = list(dict.fromkeys([*NEEDED, *present, *columns]))
    table = jobs.select(wanted).with_columns(
        pl.col("num_gpus", "duration_s").cast(pl.Float64).fill_nan(None),
        *(pl.lit(None, dtype=schema.JOBS[name]).alias(name) for name in OPTIONAL if name not in present),
    )
    has_gpus = table["num_gpus"].is_null() | (table["num_gpus"] != 0)
    if not has_gpus.all():
        table = table.filter(has_gpus)
    _check(table)
    if table.schema["submit_time"] != schema.TIME:
        table = table.with_columns(_in_utc(table["submit_time"]))
    return _in_order(table), jobs.height - table.height


def _in_utc(times: pl.Series) -> pl.Series:
    """Microseconds in UTC; naive times are taken as UTC."""
    times = times.dt.cast_time_unit("us")
    is_naive = times.dtype == pl.Datetime("us")
    return times.dt.replace_time_zone("UTC") if is_naive else times.dt.convert_time_zone("UTC")


def _check(table: pl.DataFrame) -> None:
    if not isinstance(table.schema["submit_time"], pl.Datetime):
        found = f"column 'submit_time' has dtype {table.schema['submit_time']}; expected {schema.TIME}"
        raise SchemaError(table="jobs", violations=[found])
    untimed = table["submit_time"].null_count()
    if untimed:
        raise NoTimelineError(where="replay", num_missing=untimed, num_jobs=table.height)
    violations = [
        f"column {name!r} has {count} values below 0 or infinite (first job ids {ids}); expected 0 or more"
        for name in ("num_gpus", "duration_s")
        if (count := int((wrong := (table[name] < 0) | table[name].is_infinite()).sum()))
        and (ids := table.filter(wrong)["job_id"].head(3).to_list())
    ]
    if table["job_id"].null_count():
        violations.append(f"column 'job_id' has {table['job_id'].null_count()} nulls; expected none")
    elif table["job_id"].n_unique() != table.height:
        ids = table.filter(table["job_id"].is_duplicated())["job_id"].unique().sort().head(3).to_list()
        violations.append(f"column 'job_id' has repeated ids (first {ids}); expected each once")
    if violations:
        raise SchemaError(table="jobs", violations=violations)


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    submit = table["submit_time"].to_physical().to_numpy()
    if np.all(submit[1:] > submit[:-1]):
        return table
    keys = schema.job_order(table["job_id"])
    if _is_ordered(submit, keys):
        return table
    order = keys.with_columns(submit=submit).with_row_index("row").sort(["submit", "number", "text"])["row"]
    return table[order]


def _is_ordered(submit: I64, keys: pl.DataFrame) -> bool:
    id_column = "text" if keys["number"].null_count() else "number"
    rises = (keys[id_column] >= keys[id_column].shift(1)).fill_null(value=True).to_numpy()[1:]
    later, same = submit[1:] > submit[:-1], submit[1:] == submit[:-1]
    return bool(np.all(later | (same & rises)))


def to_us(seconds: pl.Series) -> I64:
    """Whole microseconds, nearest, at most ``LONGEST_US``; null counts as 0."""
    values = seconds.fill_null(0.0).to_numpy()
    rounded: I64 = np.rint(np.minimum(values * US, LONGEST_US)).astype(np.int64)
    return rounded


def predicted_us(jobs: pl.DataFrame, predicted: str | None) -> I64:
    """Predicted durations of all jobs, or the true ones, in whole microseconds.

    Raises
    ------
    SchemaError
        If a job with a known duration has no usable prediction: null, NaN, or below 0.
    """
    if predicted is None:
        return to_us(jobs["duration_s"])
    values = jobs[predicted].cast(pl.Float64)
    unusable = (values.is_null() | values.is_nan() | (values < 0)) & jobs["duration_s"].is_not_null()
    count = int(unusable.sum())
    if count:
        ids = jobs.filter(unusable)["job_id"].head(3).to_list()
        found = f"column {predicted!r} is null, NaN or below 0 in {count} rows (first job ids {ids}); expected seconds"
        raise SchemaError(table="jobs", violations=[found])
    return to_us(values.fill_nan(None))


def check_predicted(jobs: pl.DataFrame, predicted: str | None) -> None:
    """Refuse the name of a prediction that is not a column of numbers.

    Raises
    ------
    UnknownNameError
        If it is not a column; the message lists the ``predicted_*`` columns that are.
    SchemaError
        If it does not hold numbers.
    """
    if predicted is None:
        return
    if predicted not in jobs.columns:
        known = [name for name in jobs.columns if name.startswith("predicted_")]
        hint = "Append predictions to the jobs table first ('hindcast predict', or backtest's predictions)."
        raise UnknownNameError(kind="column of predicted durations", found=predicted, known=known, hint=hint)
    if not jobs.schema[predicted].is_numeric():
        found = f"column {predicted!r} has dtype {jobs.schema[predicted]}; expected numbers (seconds)"
        raise SchemaError(table="jobs", violations=[found])


def demands(jobs: pl.DataFrame) -> tuple[I64, I64, I64]:
    """What each job asks for.

    Returns
    -------
    whole, pieces, millis : int64 arrays
        Whole GPUs, number of fractions, and milli-GPUs of each fraction (0 where there is none).
    """
    total = np.rint(jobs["num_gpus"].fill_null(0.0).to_numpy() * MILLI)
    tasks = np.ones(1, dtype=np.int64)
    if jobs["num_tasks"].null_count() < jobs.height:
        tasks = jobs["num_tasks"].fill_null(1).clip(lower_bound=1).to_numpy().astype(np.int64)
    # Rounded down: else 6 tasks would not fit on the one GPU that they share.
    each = np.maximum(total // tasks, 1).astype(np.int64)
    whole = each // MILLI
    millis = each - whole * MILLI
    return tasks * whole, np.where(millis > 0, tasks, 0), millis
