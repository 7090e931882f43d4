"""How full a cluster gets: jobs come one after another, none leaves (the experiment of the FGD paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.errors import SchemaError, UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.replay._asks import Asks, ask_rows
from analysis.replay._fill import fill, make_filled
from analysis.replay._hardware import MILLI, make_entries
from analysis.replay._scoring import Scoring
from analysis.replay.cluster import Cluster
from analysis.replay.placement import SCORED

__all__ = ["PackingResult", "inflate", "pack"]

#: Columns of ``PackingResult.placed``.
PLACED: Final = {
    "job_id": pl.String(),
    "node_id": pl.String(),
    "arrived_gpus": pl.Float64(),
    "allocated_gpus": pl.Float64(),
    "unallocatable_gpus": pl.Float64(),
}


@dataclass(frozen=True)
class PackingResult:
    """What became of jobs that came and never left.

    Attributes
    ----------
    placed : DataFrame, one row per job in the order of arrival
        job_id; node_id (the first, in the order of its GPUs; null: it fitted nowhere); and after its arrival, summed up
        [GPUs]: arrived_gpus (asked for), allocated_gpus, unallocatable_gpus (free, and expected to be of no use to the
        next typical task).
    placement : str
        Its name.
    num_gpus : int
        GPUs of the cluster.
    """

    placed: pl.DataFrame
    placement: str
    num_gpus: int

    @property
    def gpu_allocation(self) -> float:
        """Share of the cluster's GPUs that is allocated in the end."""
        return self.at(float("inf"))["gpu_allocation"]

    def at(self, load: float) -> dict[str, float]:
        """How it stood when jobs for ``load`` times the cluster's GPUs had arrived.

        Returns
        -------
        dict
            gpu_allocation and unallocatable_share: shares of the cluster's GPUs; and unallocatable_of_free: share of
            the free GPUs, NaN where none is free. The last job counted is the last with arrived GPUs up to the load.
        """
        seen = self.placed.filter(pl.col("arrived_gpus") <= load * self.num_gpus)
        allocated, lost = (
            float(seen[name][-1]) if seen.height else 0.0 for name in ("allocated_gpus", "unallocatable_gpus")
        )
        free = self.num_gpus - allocated
        return {
            "gpu_allocation": allocated / self.num_gpus,
            "unallocatable_share": lost / self.num_gpus,
            "unallocatable_of_free": lost / free if free > 0 else float("nan"),
        }


def inflate(jobs: Any, *, num_gpus: float, load: float = 1.3, seed: int = 0) -> pl.DataFrame:
    """Draw an order of arrival: all jobs shuffled, then jobs drawn again until they ask for more than the load.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas
        A jobs table; needs job_id and num_gpus (null: left out).
    num_gpus : float
        GPUs of the cluster.
    load : float, default 1.3
        GPUs asked for, over ``num_gpus``.
    seed : int
        Of the shuffle and the draw.

    Returns
    -------
    DataFrame
        The same columns. A job that is drawn again is named ``<job_id>+1``, ``+2`` ….

    Raises
    ------
    UsageError
        If no job asks for GPUs.

    References
    ----------
    .. [1] Q. Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 6.1 (Monte-Carlo workload inflation).
    """
    known = jobs_to_polars(jobs).filter(pl.col("num_gpus").is_not_null()).sort("job_id")
    gpus = known["num_gpus"].to_numpy()
    if not gpus.sum() > 0:
        msg = f"packing: {known.height} jobs with known GPUs ask for none in sum. Give a jobs table with GPU jobs."
        raise UsageError(msg)
    rng = np.random.default_rng(seed)
    order = rng.permutation(known.height)
    missing = load * num_gpus - gpus.sum()
    drawn = np.zeros(0, dtype=np.int64)
    while gpus[drawn].sum() <= missing:
        drawn = np.concatenate([drawn, rng.integers(0, known.height, known.height)])
    if missing >= 0:
        drawn = drawn[: int(np.searchsorted(np.cumsum(gpus[drawn]), missing, side="right")) + 1]
    arriving = known[np.concatenate([order, drawn]).astype(np.int64)]
    again = pl.int_range(pl.len()).over("job_id")
    name = pl.when(again == 0).then("job_id").otherwise(pl.format("{}+{}", "job_id", again))
    return arriving.with_columns(job_id=name)


def pack(jobs: Any, *, cluster: Cluster, placement: str = "fgd", seed: int = 0, typical: Any = None) -> PackingResult:
    """Let jobs arrive in the order of the table; each stays where it is put, and one that does not fit is gone.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; needs job_id and num_gpus (not null); reads num_cpus, mem_gib, allowed_gpu_types, num_tasks and
        is_single_node where they are there. CPU jobs (0 GPUs) take CPUs and memory. Times and VCs count for nothing.
    cluster : Cluster
        Its nodes with GPUs.
    placement : str, default "fgd"
        A name from ``SCORED``.
    seed : int
        Of placement ``random``.
    typical : DataFrame, optional
        The jobs whose most frequent tasks make what is unallocatable; by default ``jobs``.

    Returns
    -------
    PackingResult

    Raises
    ------
    UnknownNameError
        If there is no such placement, or it is not scored.
    SchemaError
        If a column is missing or num_gpus is null.

    References
    ----------
    .. [1] Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
       Descent", USENIX ATC 2023.

    Examples
    --------
    Half GPUs leave whole ones free where they can.

    >>> jobs = pl.DataFrame({"job_id": ["a", "b", "c"], "num_gpus": [0.5, 1.0, 0.5]})
    >>> result = pack(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=2), placement="best_fit")
    >>> result.placed["allocated_gpus"].to_list(), result.gpu_allocation
    ([0.5, 1.5, 2.0], 1.0)
    """
    if placement not in SCORED:
        raise UnknownNameError(kind="scored placement", found=placement, known=SCORED)
    table = _checked(jobs)
    asks = ask_rows(
        table,
        cluster=cluster,
        scoring=Scoring(SCORED[placement], seed),
        typical=table if typical is None else _checked(typical),
    )
    held = make_entries(asks.num_entries, asks.hw)
    out = make_filled(table.height, len(asks.hw.free))
    if table.height:
        fill(asks.hw, asks.scores, asks.job_class, held, out)
    return PackingResult(_placed(table, asks, out.node, out.lost), placement, cluster.num_gpus)


def _checked(jobs: Any) -> pl.DataFrame:
    table = jobs_to_polars(jobs)
    violations = [
        f"column {name!r} is missing; packing reads it" for name in ("job_id", "num_gpus") if name not in table.columns
    ]
    if not violations and table["num_gpus"].null_count():
        ids = table.filter(pl.col("num_gpus").is_null())["job_id"].head(3).to_list()
        violations.append(
            f"column 'num_gpus' is null in {table['num_gpus'].null_count()} rows (first job ids {ids}); "
            "expected numbers: drop these jobs"
        )
    if violations:
        raise SchemaError(table="jobs", violations=violations)
    return table


def _placed(table: pl.DataFrame, asks: Asks, node: Any, lost: Any) -> pl.DataFrame:
    milli = asks.milli
    fits = node >= 0
    weight = max(int(asks.scores.tasks.total[0]), 1)
    return pl.DataFrame(
        {
            "job_id": table["job_id"],
            "node_id": asks.node_ids.gather(np.where(fits, node, 0)).set(~pl.Series(fits), None),
            "arrived_gpus": np.cumsum(milli) / MILLI,
            "allocated_gpus": np.cumsum(np.where(fits, milli, 0)) / MILLI,
            "unallocatable_gpus": lost / (weight * MILLI),
        },
        schema=PLACED,
    )
