"""Small jobs tables for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from analysis import schema


def make_jobs(rows: Sequence[Mapping[str, Any]], *, sort: bool = True) -> pl.DataFrame:
    """Build a jobs table from a few named values a row; the rest is null, not censored, without flags."""
    full = [
        dict.fromkeys(schema.JOBS) | {"censoring": "none", "flags": [], "job_id": str(i)} | dict(row)
        for i, row in enumerate(rows)
    ]
    jobs = pl.DataFrame(full, schema=schema.JOBS, orient="row")
    return schema.sort_jobs(jobs) if sort else jobs
