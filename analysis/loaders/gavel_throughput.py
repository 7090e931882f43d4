"""Gavel's measured throughputs (``simulation_throughputs.json``): how fast each class of job runs on each GPU type.

Source: https://github.com/stanford-futuredata/gavel. Licence: MIT. A key such as ``v100`` or ``v100_unconsolidated``
holds job keys ``('ResNet-18 (batch size 16)', 1)`` (class and number of GPUs), each with the steps per second alone
(``null``) and of a pair that shares the GPUs. Of a pair only the rate of the job itself is kept: that of the other
stands under the other's key.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis.errors import BadFileError
from analysis.loaders.files import peek
from analysis.loaders.records import read_json

__all__ = ["THROUGHPUTS", "is_throughputs", "read_throughputs"]

#: Columns of the table.
THROUGHPUTS: Final[dict[str, pl.DataType]] = {
    "job_class": pl.String(),
    "gpu_type": pl.String(),
    "num_gpus": pl.Int64(),
    "colocated_with": pl.String(),  # null = alone
    "colocated_num_gpus": pl.Int64(),
    "is_consolidated": pl.Boolean(),
    "steps_per_s": pl.Float64(),  # 0 = it does not run there
}
JOB_KEY: Final = re.compile(r"""\((['"])(.*)\1, ?(\d{1,9})\)""", re.DOTALL)
SCATTERED: Final = "_unconsolidated"
ALONE: Final = "null"
MOST_STEPS_PER_S: Final = 1e12


def is_throughputs(path: Path) -> bool:
    """Whether a file looks like Gavel's throughputs. Never raises."""
    start = peek(path)[:2000]
    return start.lstrip().startswith("{") and JOB_KEY.search(start) is not None


def read_throughputs(path: Path | str) -> pl.DataFrame:
    """Read Gavel's throughputs as a long table.

    Parameters
    ----------
    path : path
        The JSON file, plain or compressed.

    Returns
    -------
    DataFrame, one row per measured combination
        ``job_class``; ``gpu_type`` (upper case); ``num_gpus``; ``colocated_with`` and ``colocated_num_gpus``, the job
        that shares the GPUs (null: alone); ``is_consolidated``; ``steps_per_s`` (0: it does not run there). Sorted.

    Raises
    ------
    BadFileError
        If it is not such a file; all that is wrong is counted.
    """
    path = Path(path)
    value, _ = read_json(path, expected="a JSON object of GPU types (Gavel's throughputs)")
    rows: list[tuple[Any, ...]] = []
    wrong: list[str] = []
    kinds = value.items() if isinstance(value, dict) else []
    for kind, jobs in kinds:
        for key, partners in jobs.items() if isinstance(jobs, dict) else [(None, None)]:
            for partner, rate in partners.items() if isinstance(partners, dict) else [(None, None)]:
                row = _row(kind, key, partner, rate)
                rows.append(row) if row else wrong.append(json.dumps([kind, key, partner])[:80])
    if wrong or not rows:
        raise BadFileError(
            path,
            kind="wrong_columns",
            found=f"{len(wrong)} entries that are no measurement (first: {', '.join(wrong[:3]) or 'there is none'})",
            expected='GPU type -> "(\'job class\', GPUs)" -> "null" or another such key -> steps per second',
            fix="Is it Gavel's simulation_throughputs.json?",
        )
    return pl.DataFrame(rows, schema=THROUGHPUTS, orient="row").sort(*list(THROUGHPUTS)[:-1], nulls_last=False)


def _row(kind: str, key: Any, partner: Any, rate: Any) -> tuple[Any, ...] | None:
    job = JOB_KEY.fullmatch(key or "")
    other = JOB_KEY.fullmatch(partner or "")
    if not job or (not other and partner != ALONE):
        return None
    own = rate[0] if other and isinstance(rate, list) and len(rate) == 2 else None if other else rate
    if isinstance(own, bool) or not isinstance(own, int | float) or not 0 <= own < MOST_STEPS_PER_S:
        return None
    gpu_type = kind.removesuffix(SCATTERED).upper()
    beside = (other[2], int(other[3])) if other else (None, None)
    return (job[2], gpu_type, int(job[3]), *beside, not kind.endswith(SCATTERED), float(own))
