"""Count the inputs on a Dask cluster: each worker counts parts of the log, the client merges what they counted."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from analysis.characterize.engines import Collected, Request, cut
from analysis.characterize.prepare import Facts
from analysis.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PART_JOBS", "collect_dask", "dask_client"]

#: Jobs of a part at most, and parts per worker at least, so that no worker is idle while another has much left.
PART_JOBS: Final = 2_000_000
PARTS_PER_WORKER: Final = 2
#: A query of more bytes than this holds rows.
LARGE_QUERY: Final = 1_000_000


def dask_client(address: str | None = None) -> Client:
    """Client of the Dask scheduler at an address, or the one that is current.

    Parameters
    ----------
    address : str, optional
        As ``tcp://10.0.0.5:8786``; by default the client that the program has made.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no client, or nobody answers at the address.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        msg = "engine 'dask': the package 'distributed' is not installed; pip install 'gpu-hindcast[dask]'."
        raise UsageError(msg) from error
    try:
        client: Client = distributed.Client(address, timeout="20s") if address else distributed.default_client()
    except (OSError, ValueError) as error:
        where = f"no Dask scheduler answers at {address}" if address else "there is no Dask client"
        msg = (
            f"engine 'dask': {where} ({type(error).__name__}); start a scheduler ('dask scheduler') and workers "
            "('dask worker ADDRESS'), and give the scheduler's address."
        )
        raise UsageError(msg) from error
    return client


def collect_dask(jobs: pl.LazyFrame, request: Request) -> Collected:
    """Count on the workers of the current client; files that the jobs are read from must be there under the same path.

    Parameters
    ----------
    jobs : LazyFrame, one row per job
        All columns of the jobs table.
    request : Request
        What is wanted.

    Raises
    ------
    UsageError
        If there is no client.
    """
    client = dask_client()
    parts = _parts(jobs, num_workers=len(client.scheduler_info(n_workers=-1)["workers"]))
    facts = Facts.merge(list(_in_order(client, _facts_of, parts, request)))
    return facts, request.merge(_in_order(client, _count, parts, request, facts))


def _parts(jobs: pl.LazyFrame, *, num_workers: int) -> list[pl.LazyFrame]:
    num_jobs = int(jobs.select(pl.len()).collect().item())
    parts = cut(jobs, max(min(PART_JOBS, -(-num_jobs // (PARTS_PER_WORKER * max(num_workers, 1)))), 1))
    # A query over a table in memory carries all of it with every slice; there the rows are cut before they are sent.
    carries_rows = len(pickle.dumps(parts[0])) > LARGE_QUERY
    return [part.collect().lazy() for part in parts] if carries_rows else parts


def _in_order(client: Client, work: Any, parts: list[pl.LazyFrame], *more: Any) -> Iterator[Any]:
    """Results in the order of the parts, each let go of as soon as it has been taken."""
    # Not pure: a hash of a query would cost more than it saves.
    futures = [client.submit(work, part, *more, pure=False) for part in parts]
    futures.reverse()
    while futures:
        yield futures.pop().result()


def _facts_of(part: pl.LazyFrame, request: Request) -> pl.DataFrame:
    return request.facts(part)


def _count(part: pl.LazyFrame, request: Request, facts: Facts) -> list[pl.DataFrame]:
    return request.count(part, num_jobs=facts.num_jobs, facts=facts)[1]
