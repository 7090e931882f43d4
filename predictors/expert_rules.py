"""What the committee's experts look at: rows that ask, the log that answers, simple rules, and the learners' columns.

Everything is log(1 + s). The owner of a job is its user, or where the log has none the account, or else the VC.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from predictors.asking import instants
from predictors.features import category_codes
from predictors.history import PAST, Failures, ended_jobs, key_columns
from predictors.jobs_table import as_jobs, microseconds
from predictors.rings import RING_STATS, Asks, Ends, ring_stats

__all__ = ["CATEGORIES", "COLUMNS", "LEARNT_KEYS", "LOG", "RULES", "SIMPLE", "View", "teaching", "wide_log"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Columns that the committee needs of a past job beyond those of ``PAST``.
_MORE: Final = {
    "came_time": schema.TIME,
    "began_time": schema.TIME,
    "owner": pl.String(),
    "cluster": pl.String(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "num_tasks": pl.Float64(),
}
#: A table of ended jobs as the committee keeps it.
LOG: Final = {**PAST, **_MORE}
KEYS: Final = {
    "owner": ("owner",),
    "owner_size": ("owner", "size"),
    "owner_limit": ("owner", "limit"),
    "owner_size_limit": ("owner", "size", "limit"),
    "vc": ("vc",),
    "vc_size": ("vc", "size"),
    "all": (),
}
LEARNT_KEYS: Final = tuple(key for key in KEYS if key != "all")
#: Experts that need no learning, in the committee's order.
RULES: Final = ("request_median", "request_last_two", "request_batches", "limit_share")
#: Rules that a site could use without any model: the committee must not fall behind the best of them.
SIMPLE: Final = ("requested_limit", "user_median", "request_median", "last_two")
STATIC: Final = (
    "size",
    "num_cpus",
    "mem_gib",
    "num_tasks",
    "hour",
    "weekday",
    "limit",
    "waited_s",
    "cluster",
    "vc",
    "owner",
)
CATEGORIES: Final = ("cluster", "vc", "owner")
#: Columns of the learners' matrix.
COLUMNS: Final = (
    *STATIC,
    "base",
    "limit_to_base",
    *(f"rule__{name}" for name in RULES),
    *(f"{key}__{stat}" for key in LEARNT_KEYS for stat in RING_STATS),
)


def wide_log(jobs: Any) -> pl.DataFrame:
    """Ended jobs of a log in the order of their ends, with all that the experts need of them (``LOG``)."""
    table = as_jobs(jobs)
    start = pl.when(~pl.col("flags").list.contains("times_assumed")).then(pl.col("start_time"))
    more = table.select(
        "job_id",
        came_time="submit_time",
        began_time=pl.max_horizontal(start, "submit_time"),
        owner=_owner(),
        **{name: pl.col(name).cast(pl.Float64) for name in ("num_cpus", "mem_gib", "num_tasks")},
        cluster=pl.col("cluster"),
    ).unique("job_id", keep="first", maintain_order=True)
    told = ended_jobs(table).join(more, on="job_id", how="left", maintain_order="left")
    return told.filter(pl.col("came_time").is_not_null()).select(*LOG).cast(LOG)  # type: ignore[arg-type]


def teaching(log: pl.DataFrame, failures: Failures) -> pl.DataFrame:
    """Those jobs of a log that teach."""
    return log if failures == "keep" else log.filter(~pl.col("is_failure").fill_null(value=False))


def _owner() -> pl.Expr:
    return pl.coalesce("user", "account", "vc")


def _rows(jobs: pl.DataFrame) -> pl.DataFrame:
    """Rows that ask, with the columns of ``_ASKED``."""
    return jobs.select(
        at_time=instants(jobs),
        came_time="submit_time",
        owner=_owner(),
        vc="vc",
        size=key_columns()["size"],
        limit="time_limit_s",
        cluster="cluster",
        **{name: pl.col(name).cast(pl.Float64) for name in ("num_cpus", "mem_gib", "num_tasks")},
    )


def _past_rows(log: pl.DataFrame, at: str) -> pl.DataFrame:
    """Past jobs as rows that asked at their submission ("came_time") or start ("began_time", or else submission)."""
    return log.select(
        at_time=pl.coalesce(at, "came_time"),
        came_time="came_time",
        owner="owner",
        vc="vc",
        size="size",
        limit="time_limit_s",
        cluster="cluster",
        num_cpus="num_cpus",
        mem_gib="mem_gib",
        num_tasks="num_tasks",
    )


class View:
    """Rows that ask, seen against a log; a row's numbers depend on what had ended before its instant only.

    Parameters
    ----------
    log : DataFrame
        From ``wide_log``.
    jobs : DataFrame or str
        Rows that ask (from ``asked_at``), or "came_time" or "began_time": the log's own jobs at that instant.
    fallback : float
        What is said where nothing had ended. [log(1 + s)]
    failures : {"keep", "exclude"}
        Whether jobs that broke count.
    time_zone : str
        In which hour and weekday are meant.
    first : int, default 0
        Of the log's own jobs those from this place on ask.
    """

    def __init__(
        self,
        log: pl.DataFrame,
        jobs: pl.DataFrame | str,
        *,
        fallback: float,
        failures: Failures,
        time_zone: str,
        first: int = 0,
    ) -> None:
        self.whole_log = log
        self.log = teaching(log, failures)
        self.rows = _past_rows(self.log[first:], jobs) if isinstance(jobs, str) else _rows(jobs)
        self.fallback, self.time_zone = fallback, time_zone
        self.at_us, _ = microseconds(self.rows["at_time"])
        self.waited_s = np.maximum(self.at_us - microseconds(self.rows["came_time"])[0], 0) / 1e6
        self.log_s = np.log1p(self.log["duration_s"].to_numpy())
        self.end_us, _ = microseconds(self.log["end_time"])
        self.log_limit = np.log1p(self.rows["limit"].fill_null(np.inf).to_numpy())
        self._codes: dict[str, tuple[Ints, Ints]] = {}

    def keys(self, name: str) -> tuple[Ints, Ints]:
        """Numbers of a key of ``KEYS`` for the log and the rows; -1 where a column but the limit is null."""
        columns = KEYS[name]
        if not columns:
            return np.zeros(self.log.height, dtype=np.int64), np.zeros(self.rows.height, dtype=np.int64)
        if name not in self._codes:
            place, kinds = self._kinds
            table = kinds.select(columns)
            lacks = table.select(pl.any_horizontal(pl.exclude("limit").is_null()))[:, 0].to_numpy()
            codes = np.where(lacks, -1, _number(table))[place]
            self._codes[name] = codes[: self.log.height], codes[self.log.height :]
        return self._codes[name]

    @cached_property
    def _kinds(self) -> tuple[Ints, pl.DataFrame]:
        """The kind (owner, size, limit, VC) of each job of the log and then of each row, and the kinds as they came."""
        columns = ("owner", "size", "limit", "vc")
        log = self.log.select("owner", "size", pl.col("time_limit_s").alias("limit"), "vc")
        table = pl.concat([log, self.rows.select(columns)])
        place = _number(table)
        return place, table.with_columns(_kind=place).unique("_kind", keep="first", maintain_order=True).drop("_kind")

    @cached_property
    def batch(self) -> Ints:
        """Number of each past job's batch: same owner, size and limit, submitted in the same minute."""
        place, kinds = self._kinds
        asked = _number(kinds.select("owner", "size", "limit"))[place[: self.log.height]]
        minute = pl.col("came_time").dt.epoch("us") // 60_000_000
        return _number(self.log.select(minute, asked=pl.lit(pl.Series(asked))))

    def _ring(self, key: str, values: Floats) -> Floats:
        of_log, of_rows = self.keys(key)
        ends = Ends(of_log, self.end_us, values, self._broke, self.batch)
        return ring_stats(ends, Asks(of_rows, self.at_us), order=self._order)

    @cached_property
    def _broke(self) -> Floats:
        broke = (self.log["is_failure"] | self.log["is_killed"]).fill_null(value=False)
        return broke.to_numpy().astype(np.float64)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.at_us, kind="stable")

    @cached_property
    def rings(self) -> dict[str, Floats]:
        """``RING_STATS`` of every key of ``KEYS``."""
        return {key: self._ring(key, self.log_s) for key in KEYS}

    @cached_property
    def rules(self) -> dict[str, Floats]:
        """What each of ``RULES`` and ``SIMPLE`` says, never above the limit."""
        request = ("owner_size_limit", "owner_limit", "owner")
        said = {
            "request_median": self._first("median", request),
            "request_last_two": self._first("mean_2", request),
            "request_batches": self._first("batch_median", request),
            "limit_share": self._limit_share(),
            "user_median": self._first("median", ("owner",)),
            "last_two": self._first("mean_2", ("owner",)),
            "requested_limit": np.where(np.isinf(self.log_limit), self._first("median", ()), self.log_limit),
        }
        return {name: np.minimum(values, self.log_limit) for name, values in said.items()}

    def _first(self, stat: str, keys: tuple[str, ...]) -> Floats:
        """The statistic of the first key that has ended jobs; then the VC's, everybody's, the fallback."""
        place = RING_STATS.index(stat)
        found = np.full(self.rows.height, np.nan)
        for key in (*keys, "vc", "all"):
            found = np.where(np.isnan(found), self.rings[key][:, place], found)
        return np.where(np.isnan(found), self.fallback, found)

    def _limit_share(self) -> Floats:
        """The limit times the share of it that the owner's last batches ran for (the duration where there is none)."""
        limit = np.log1p(self.log["time_limit_s"].fill_null(0.0).to_numpy())
        place = RING_STATS.index("batch_median")
        share = np.full(self.rows.height, np.nan)
        for key in ("owner", "vc"):
            share = np.where(np.isnan(share), self._ring(key, self.log_s - limit)[:, place], share)
        said = share + np.where(np.isinf(self.log_limit), 0.0, self.log_limit)
        return np.where(np.isnan(said), self._first("median", ()), said)

    @cached_property
    def base(self) -> Floats:
        """Median of five rules: what residual learners start from."""
        names = ("user_median", "request_median", "request_last_two", "request_batches", "limit_share")
        return np.asarray(np.median([self.rules[name] for name in names], axis=0))

    @cached_property
    def _columns(self) -> NDArray[np.float32]:
        """Columns of ``COLUMNS`` without the categories, which depend on what was learned."""
        local = pl.col("at_time").dt.convert_time_zone(self.time_zone)
        numbers = {"hour": local.dt.hour(), "weekday": local.dt.weekday(), "waited_s": pl.lit(pl.Series(self.waited_s))}
        numbers |= dict.fromkeys(CATEGORIES, pl.lit(None))
        table = self.rows.select(numbers.get(n, pl.col(n)).cast(pl.Float64).alias(n) for n in STATIC)
        limit = np.where(np.isinf(self.log_limit), np.nan, self.log_limit - self.base)
        parts = [table.fill_null(np.nan).to_numpy(), self.base[:, None], limit[:, None]]
        parts += [(self.rules[name] - self.base)[:, None] for name in RULES]
        parts += [self.rings[key] for key in LEARNT_KEYS]
        found = np.empty((self.rows.height, len(COLUMNS)), dtype=np.float32)
        place = 0
        for part in parts:
            found[:, place : place + part.shape[1]] = part
            place += part.shape[1]
        return found

    def matrix(self, codes: dict[str, dict[str, float]], rows: Ints) -> NDArray[np.float32]:
        """Columns of ``COLUMNS`` for some rows in order, categories by ``codes``; NaN where not known.

        Of all rows it is the View's own: the next call writes other codes into it.
        """
        found = self._columns if len(rows) == self.rows.height else self._columns[rows]
        for name, code in codes.items():
            found[:, COLUMNS.index(name)] = category_codes(self.rows[name][rows], code).fill_null(np.nan).to_numpy()
        return found


def _number(table: pl.DataFrame) -> Ints:
    """Equal numbers for equal rows (null equals null), in order of first appearance."""
    whole = table.with_row_index("_row")
    first = whole.group_by(table.columns, maintain_order=True).agg("_row").with_row_index("_code")
    pairs = first.select("_code", "_row").explode("_row").sort("_row")
    return pairs["_code"].cast(pl.Int64).to_numpy()
