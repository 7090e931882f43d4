"""Options of 'hindcast characterize': which jobs, in which groups, and who counts them."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from analysis.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AddressOption", "ByOption", "EngineOption", "WhereOption", "counting", "job_filter"]

ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="GROUPS",
        help="Every table for each group: cluster, vc, user, workload, gpu_type, gpu_bucket, status; commas between.",
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(metavar="SQL", help="Jobs that enter, as \"num_gpus >= 8 AND status = 'failed'\"."),
]
EngineOption = Annotated[
    str, typer.Option(metavar="polars|dask", help="Who counts: this process, or the workers of a Dask cluster.")
]
AddressOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Scheduler of the Dask cluster, as tcp://10.0.0.5:8786.")
]

#: A text or a quoted name, which stay as they are; or one of the columns whose names mean something else in SQL.
RESERVED: Final = re.compile(r"""('(?:[^']|'')*'|"[^"]*")|\b(user|group)\b(?!\s*\()""", re.IGNORECASE)


def job_filter(text: str | None) -> pl.Expr | None:
    """Condition on the columns of the jobs table from its text in SQL; null for none.

    Raises
    ------
    UsageError
        If it is no SQL, or no condition on columns of these types.
    UnknownNameError
        If a column is not one of the jobs table.

    Examples
    --------
    >>> print(job_filter("num_gpus > 1"))
    [(col("num_gpus")) > (dyn int: 1)]
    >>> print(job_filter("user = 'ann'"))
    [(col("user")) == ("ann")]
    """
    import polars as pl

    from analysis.schema import JOBS, empty_table

    if text is None:
        return None
    try:
        condition = pl.sql_expr(RESERVED.sub(lambda found: found[1] or f'"{found[2].lower()}"', text))
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise _no_condition(text, error) from error
    for name in condition.meta.root_names():
        if name.startswith("_POLARS_"):
            raise _no_condition(text, ValueError("a query within it, but there is one table only"))
        if name not in JOBS:
            raise UnknownNameError(kind="column of the jobs table", found=name, known=JOBS, hint="(in --where)")
    try:
        # Without a row: what does not fit the types shows all the same.
        empty_table("jobs").lazy().filter(condition).collect()
    except pl.exceptions.PolarsError as error:
        raise _no_condition(text, error) from error
    return condition


def _no_condition(text: str, error: Exception) -> UsageError:
    found = str(error).splitlines()[0]
    msg = (
        f"--where: {text!r} is no condition in SQL ({found}); write it as \"num_gpus >= 8 AND user = 'ann'\", "
        "and a day as \"submit_time >= DATE '2024-05-01'\"."
    )
    return UsageError(msg)


def counting(*, engine: str, address: str | None) -> AbstractContextManager[Any]:
    """Connection to the Dask cluster for as long as jobs are counted; nothing for the engine "polars".

    Raises
    ------
    UnknownNameError
        If there is no such engine.
    UsageError
        If engine and address do not fit together, or nobody answers at the address.
    """
    from analysis.characterize.engine_dask import dask_client
    from analysis.characterize.engines import ENGINES

    if engine not in ENGINES:
        raise UnknownNameError(kind="engine", found=engine, known=ENGINES)
    if (engine == "dask") != (address is not None):
        msg = (
            "--engine dask: the address of the scheduler is missing; add --address tcp://HOST:8786."
            if address is None
            else f"--address {address}: only a Dask cluster has one; add --engine dask."
        )
        raise UsageError(msg)
    return dask_client(address) if address else nullcontext()
