"""Which Philly job had which GPU when, and what its GPUs did: one pass over the minutes, in bounded memory.

A minute of a GPU belongs to the attempt that had the GPU then: attempt start floored to the minute <= time < end; an
attempt without end had it until the measurements stop. If attempts overlap on one GPU, the one that began last counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from analysis.loaders.philly_attempts import parse_times
from analysis.loaders.series import Codes
from analysis.loaders.zones import to_utc

__all__ = ["Occupancy"]

#: Values are counted in steps of half a percentage point: medians and percentiles are that exact.
STEPS_PER_PERCENT: Final = 2
NUM_STEPS: Final = 100 * STEPS_PER_PERCENT + 1
MINUTE: Final = 60
FOREVER: Final = 2**62
MISSING: Final = (None, "", "None")
Ints = NDArray[np.int64]


class Occupancy:
    """Attempts per GPU, and the counts of what was measured while they had it.

    Parameters
    ----------
    records : sequence of (int, dict)
        The job log's records.
    job_ids : sequence of str
        Jobs that count; records of others (set aside) are passed over.
    zone : str
        IANA name of the zone of the log's naive times.

    Attributes
    ----------
    notes : list of str
        Sentences for the load report.
    """

    def __init__(self, records: Sequence[tuple[int, dict[str, Any]]], *, job_ids: Sequence[str], zone: str) -> None:
        spans = _spans(records, set(job_ids), zone)
        self._job_ids = spans["job_id"].unique().sort()
        machines = spans["machine"].unique().sort().to_list()
        gpus = spans["gpu"].unique().sort().to_list()
        self._machine = {name: number for number, name in enumerate(machines)}
        self._gpu = {name: number for number, name in enumerate(gpus)}
        self._num_gpus = max(len(gpus), 1)
        slot = spans["machine"].replace_strict(self._machine, return_dtype=pl.Int64) * self._num_gpus
        slot = slot + spans["gpu"].replace_strict(self._gpu, return_dtype=pl.Int64)
        start = spans["start"].dt.epoch("s") // MINUTE * MINUTE
        end = spans["end"].dt.epoch("s").fill_null(FOREVER)
        job = spans["job_id"].cast(pl.Enum(self._job_ids)).to_physical().cast(pl.Int64)
        table = pl.DataFrame({"key": _keys(slot, start), "slot": slot, "end": end, "job": job}).sort("key", "job")
        self._keys, self._slots, self._ends, self._jobs = (table[name].to_numpy() for name in table.columns)
        self._sums = np.zeros(len(self._job_ids))
        self._counts = np.zeros((len(self._job_ids), NUM_STEPS), dtype=np.uint32)
        is_same = self._slots[1:] == self._slots[:-1]
        overlaps = is_same & (self._keys[1:] % 2**32 < self._ends[:-1] // MINUTE * MINUTE)
        num = int(overlaps.sum())
        self.notes = [f"{num} attempts overlap on a GPU; its minutes go to the one that began last."] if num else []

    def learn(self, *, machines: Sequence[str], codes: Codes, gpu: str, times: pl.Series, percent: pl.Series) -> None:
        """Count a GPU column of some rows.

        Parameters
        ----------
        machines : sequence of str
            Machine names.
        codes : array of int
            Of each row the place of its machine among them.
        gpu : str
            Name of the GPU, "gpu0".
        times : Series of datetime[us, UTC], same length
            No nulls.
        percent : Series of float64, same length
            Utilisation [percent]; null = not measured.
        """
        if gpu not in self._gpu or not len(self._keys):
            return
        known = np.array([self._machine.get(name, -1) for name in machines], dtype=np.int64)[codes]
        measured = percent.is_not_null().to_numpy() & (known >= 0)
        seconds = times.dt.epoch("s").to_numpy()[measured]
        slot = known[measured] * self._num_gpus + self._gpu[gpu]
        values = percent.to_numpy()[measured]
        place = np.searchsorted(self._keys, slot * 2**32 + seconds, side="right") - 1
        mine = (place >= 0) & (self._slots[place] == slot) & (seconds < self._ends[place])
        job, values = self._jobs[place[mine]], values[mine]
        step = np.clip(np.rint(values * STEPS_PER_PERCENT), 0, NUM_STEPS - 1).astype(np.int64)
        np.add.at(self._sums, job, values)
        np.add.at(self._counts.reshape(-1), job * NUM_STEPS + step, 1)

    def usage(self) -> pl.DataFrame:
        """The usage table: mean, median and 95th percentile of the minutes of all GPUs of a job.

        Returns
        -------
        DataFrame, as ``schema.USAGE``
            One row per job that was measured, sorted by job_id; fractions. The mean is exact, the percentiles to half
            a percentage point. What CPUs and memory did belongs to machines, not to jobs, and is null.
        """
        total = self._counts.sum(axis=1, dtype=np.int64)
        seen = np.flatnonzero(total)
        columns = {
            "job_id": self._job_ids.gather(seen),
            "gpu_utilization_mean": self._sums[seen] / total[seen] / 100,
            "gpu_utilization_p50": self._percentile(seen, total, 0.5),
            "gpu_utilization_p95": self._percentile(seen, total, 0.95),
        }
        table = pl.DataFrame(columns)
        return table.select(
            pl.col(name).cast(dtype) if name in columns else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in schema.USAGE.items()
        )

    def _percentile(self, jobs: Ints, total: Ints, share: float) -> NDArray[np.float64]:
        wanted = np.ceil(total[jobs] * share)
        steps = np.empty(len(jobs))
        # Some jobs at a time: the cumulated counts of all would double the memory.
        for first in range(0, len(jobs), 4096):
            part = slice(first, first + 4096)
            cumulated = np.cumsum(self._counts[jobs[part]], axis=1, dtype=np.int64)
            steps[part] = (cumulated < wanted[part, None]).sum(axis=1)
        return steps / STEPS_PER_PERCENT / 100


def _keys(slot: pl.Series, start: pl.Series) -> pl.Series:
    """GPU and second in one integer that sorts by both."""
    return slot * 2**32 + start


def _spans(records: Sequence[tuple[int, dict[str, Any]]], wanted: set[str], zone: str) -> pl.DataFrame:
    """One row per attempt and GPU: job_id, machine, gpu, start, end."""
    rows = []
    for _, record in records:
        job_id = str(record.get("jobid") or "").strip()
        attempts = record.get("attempts")
        if job_id not in wanted or not isinstance(attempts, list):
            continue
        for attempt in attempts:
            if isinstance(attempt, dict) and isinstance(attempt.get("detail"), list):
                rows += _of_attempt(job_id, attempt)
    schema_ = dict.fromkeys(("job_id", "machine", "gpu", "start", "end"), pl.String())
    spans = pl.DataFrame(rows, schema=schema_, orient="row")
    spans = spans.with_columns(
        to_utc(spans.select(parse_times(pl.col(name)))[name], zone=zone) for name in ("start", "end")
    )
    return spans.drop_nulls("start").unique(maintain_order=True)


def _of_attempt(job_id: str, attempt: dict[str, Any]) -> list[tuple[str, str, str, str | None, str | None]]:
    start, end = (
        None if attempt.get(key) in MISSING else str(attempt[key]).strip() for key in ("start_time", "end_time")
    )
    return [
        (job_id, str(entry["ip"]).strip(), str(gpu).strip(), start, end)
        for entry in attempt["detail"]
        if isinstance(entry, dict) and entry.get("ip") not in MISSING
        for gpu in entry.get("gpus") or []
    ]
