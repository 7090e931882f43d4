"""GPUs per VC and day of a Helios cluster: capacity over time, nodes, and the authors' clean-up for simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.beside import sort_nodes
from analysis.loaders.cells import PROBLEM, number, read_cells, time
from analysis.loaders.delimited import Delimited
from analysis.loaders.rows import LINE
from analysis.loaders.zones import to_utc

__all__ = ["CleanUp", "read_capacity"]

GPUS_PER_NODE: Final = 8
#: No VC has more; a larger number would only make a nodes table that no memory holds.
MOST_GPUS: Final = 1_000_000
PREFIX: Final = "gpus of "
TEST_VC: Final = "vc7Bz"
#: VCs that the authors count into another one, by cluster.
MERGED: Final = {
    "Earth": {"vcxS0": "vc3sl"},
    "Venus": {"vcbIW": "vcvGl", "vc6YE": "vcvGl", "vcOhe": "vcKeu", "vccJW": "vcKeu", "vcP2J": "vchA3"},
    "Uranus": {
        **dict.fromkeys(("vcVvI", "vcxqr", "vcsBT", "vcygX"), "vcUV3"),
        **{"vcHyk": "vcOlr", "vcRDh": "vc7hD", "vcFsC": "vc7hD"},
    },
}
#: The day whose GPUs the authors simulate with.
DAY: Final = {"Saturn": date(2020, 9, 1)}
OTHER_DAY: Final = date(2020, 9, 10)


@dataclass(frozen=True)
class CleanUp:
    """The authors' clean-up: the test VC and VCs without a node left out, some VCs counted into another.

    Attributes
    ----------
    merged : dict of str to str
        VC -> the VC that it is counted into.
    left_out : tuple of str
        VCs whose jobs are set aside.
    """

    merged: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @classmethod
    def without_sizes(cls, cluster: str | None) -> CleanUp:
        """What can be said without the GPUs per VC: only the test VC is left out."""
        return cls(MERGED.get(cluster or "", {}), (TEST_VC,))

    def jobs(self, cells: pl.LazyFrame) -> pl.LazyFrame:
        """Set aside the jobs of VCs left out, and rename merged VCs."""
        is_left_out = pl.col("vc").is_in(list(self.left_out)).fill_null(value=False)
        return cells.with_columns(
            pl.coalesce(PROBLEM, pl.when(is_left_out).then(pl.lit("vc_left_out"))).alias(PROBLEM),
            vc=pl.col("vc").replace(self.merged),
        )

    def note(self) -> str:
        """Say it for the load report."""
        merged = ", ".join(f"{vc} into {other}" for vc, other in sorted(self.merged.items()))
        return (
            f"The authors' clean-up: jobs of {', '.join(self.left_out)} are set aside (vc_left_out: the test VC and "
            f"VCs of fewer than {GPUS_PER_NODE} GPUs); VCs counted into another: {merged or 'none'}."
        )


def read_capacity(
    raw: Delimited, zone: str, *, cluster: str | None = None, clean: bool = False
) -> tuple[dict[str, pl.DataFrame], list[str], CleanUp]:
    """Read the GPUs of every VC and day.

    Parameters
    ----------
    raw : Delimited
        The columns ``date``, one per VC, and maybe ``total``.
    zone : str
        In which a day begins.
    cluster : str, optional
        Which VCs the authors merge, and which day they take, depends on it.
    clean : bool, default False
        Whether to clean up as the authors do.

    Returns
    -------
    tuple of (dict of str to DataFrame, list of str, CleanUp)
        Tables ``capacity``, ``nodes`` and ``rejects``; notes; what is to be done to the jobs.
    """
    days, rejects = _days(raw)
    vcs = [name for name in days.columns if name.startswith(PREFIX)]
    long = days.unpivot(vcs, index="time", variable_name="vc", value_name="num_gpus").drop_nulls("num_gpus")
    long = long.with_columns(pl.col("vc").str.strip_prefix(PREFIX))
    day = DAY.get(cluster or "", OTHER_DAY) if clean else None
    todo = _clean_up(long, cluster, day) if clean else CleanUp()
    long = long.filter(~pl.col("vc").is_in(list(todo.left_out))).with_columns(vc=pl.col("vc").replace(todo.merged))
    long = long.group_by("vc", "time").agg(pl.col("num_gpus").sum()).sort("vc", "time")
    shown = long.filter(pl.col("time").dt.date() == day) if day else long.clear()
    last = shown.select("vc", "num_gpus") if shown.height else long.group_by("vc").last().select("vc", "num_gpus")
    of_day = f"of {day}" if shown.height else "of the last day"
    notes = [f"Nodes are those {of_day} of {raw.name}: each VC's GPUs as nodes of {GPUS_PER_NODE}."]
    if "total" in days.columns:
        differs = days.filter(pl.sum_horizontal(*vcs) != pl.col("total")).height
        if differs:
            notes.append(f"{raw.name}: on {differs} days 'total' is not the sum of the VCs; it is not used.")
    changed = (pl.col("num_gpus") != pl.col("num_gpus").shift().over("vc")).fill_null(value=True)
    capacity = long.filter(changed).with_columns(to_utc(long.filter(changed)["time"], zone=zone))
    tables = {"capacity": capacity.select(*schema.CAPACITY), "nodes": _nodes(last.sort("vc")), "rejects": rejects}
    return tables, notes, todo


def _days(raw: Delimited) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per day with the GPUs of every VC, naive ``time``; and the rows set aside."""
    vcs = [column for column in raw.columns if column not in ("date", "total")]
    # A VC may bear any name, that of another column too.
    columns = {f"{PREFIX}{vc}": number(vc) for vc in vcs}
    cells = {"time": time("date", "%Y-%m-%d"), "total": number("total"), **columns}
    days = read_cells(raw.frame, cells).collect()
    days = days.sort("time", *columns, LINE, nulls_last=True)
    no_date = pl.when(pl.col("time").is_null()).then(pl.lit("no_date"))
    again = pl.when(~pl.col("time").is_first_distinct()).then(pl.lit("duplicate_id"))
    too_many = pl.any_horizontal(pl.lit(value=False), *(pl.col(name) > MOST_GPUS for name in columns))
    too_many = pl.when(too_many).then(pl.lit("implausible_num_gpus"))
    days = days.with_columns(pl.col("time").dt.cast_time_unit("us"))
    days = days.with_columns(reason=pl.coalesce(PROBLEM, no_date, again, too_many))
    rejects = days.filter(pl.col("reason").is_not_null()).select(
        file=pl.lit(raw.name), line=LINE, reason="reason", raw=pl.lit(None, dtype=pl.String)
    )
    return days.filter(pl.col("reason").is_null()), rejects


def _clean_up(long: pl.DataFrame, cluster: str | None, day: date | None) -> CleanUp:
    merged = MERGED.get(cluster or "", {})
    shown = long.filter(pl.col("time").dt.date() == day)
    sizes = shown if shown.height else long.sort("time").group_by("vc").last()
    small = sizes.filter(pl.col("num_gpus") < GPUS_PER_NODE)["vc"].to_list()
    return CleanUp(merged, tuple(sorted({TEST_VC, *small} - set(merged))))


def _nodes(last: pl.DataFrame) -> pl.DataFrame:
    """Nodes of 8 GPUs for each VC, and one with the rest."""
    sizes = [
        (vc, min(GPUS_PER_NODE, int(gpus) - done), index)
        for vc, gpus in last.select("vc", "num_gpus").iter_rows()
        for index, done in enumerate(range(0, int(gpus), GPUS_PER_NODE))
    ]
    rows = [{"node_id": f"{vc}-{index:03d}", "num_gpus": size, "vc": vc} for vc, size, index in sizes]
    return sort_nodes(pl.DataFrame(rows, schema=schema.NODES))
