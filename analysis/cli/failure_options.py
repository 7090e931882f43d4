"""Nodes that fail at random, as the command line asks for them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from analysis.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.replay import Cluster

__all__ = ["CheckpointOption", "MtbfOption", "MttrOption", "failing"]

HOUR_S = 3600.0
MtbfOption = Annotated[
    float | None,
    typer.Option(metavar="HOURS", help="Let nodes fail at random: mean time to failure of a node; needs --mttr."),
]
MttrOption = Annotated[
    float | None, typer.Option(metavar="HOURS", help="Mean time to repair of a node that failed; needs --mtbf.")
]
CheckpointOption = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-interval",
        metavar="SECONDS",
        help="Work of a job from one checkpoint to the next, from which it goes on when its node failed; "
        "by default it starts from the beginning.",
    ),
]


def failing(
    site: Cluster, jobs: pl.DataFrame, *, mtbf_h: float | None, mttr_h: float | None, seed: int, policies: Sequence[str]
) -> tuple[Cluster, list[str]]:
    """Let the nodes of a cluster fail, from the first submission until as long after the last one as the log is long.

    Parameters
    ----------
    site : Cluster
        Where.
    jobs : DataFrame, one row per job
        Reads submit_time and duration_s; the failures go on for at least the longest job after the last submission.
    mtbf_h, mttr_h : float or None
        Mean times to failure and to repair of a node; both None: no failures. [h]
    seed : int
        Of the failures.
    policies : sequence of str
        What is to be replayed.

    Returns
    -------
    Cluster, list of str
        With the failures, and a sentence about them.

    Raises
    ------
    UsageError
        If only one of both times is given, one is not above 0, or a policy knows no failures.
    """
    from analysis.replay.helios import HELIOS

    if mtbf_h is None and mttr_h is None:
        return site, []
    if mtbf_h is None or mttr_h is None:
        msg = "--mtbf and --mttr: found one without the other; give both in hours, e.g. --mtbf 720 --mttr 2."
        raise UsageError(msg)
    if wrong := [name for name in policies if name in HELIOS]:
        msg = f"--mtbf: {', '.join(wrong)} knows no nodes that fail, as its original; leave it out, or the failures."
        raise UsageError(msg)
    span = _span(jobs)
    if span is None:
        return site, []
    since, until = span
    before = site.outages.height
    given: dict[str, Any] = {"mtbf_s": mtbf_h * HOUR_S, "mttr_s": mttr_h * HOUR_S, "seed": seed}
    failed = site.with_failures(**given, since=since, until=until)
    note = (
        f"{failed.outages.height - before:,} failures of nodes were drawn (seed {seed}): one after {mtbf_h:g} h, "
        f"repaired after {mttr_h:g} h, in the mean; the last before {until:%Y-%m-%d %H:%M} (UTC)."
    )
    return failed, [note]


def _span(jobs: pl.DataFrame) -> tuple[datetime, datetime] | None:
    """The instants between which nodes fail; None if no job says when it was submitted."""
    first, last, longest = jobs.select(
        pl.col("submit_time").min().alias("first"),
        pl.col("submit_time").max().alias("last"),
        pl.col("duration_s").max().alias("longest"),
    ).row(0)
    if first is None:
        return None
    return first, last + max(last - first, timedelta(seconds=longest or 0.0), timedelta(seconds=1))
