"""Write expected.csv of a loader's sample (``python tests/golden/make_expected.py NAME``); then check it by eye.

A sample is a folder ``tests/golden/<loader>/`` with ``raw/`` (at most 20 invented rows, each odd in its own way),
``WHY.md`` (what each row is for and what is right), ``expected.csv`` (the jobs as text) and ``sample.toml``:

    main = "jobs.csv"           # the file of jobs below raw/
    kind = "csv"                # or "json" (one array), or "other": only the tests that need no rewriting
    has_header = true
    separator = ","
    status_column = "state"     # left out if the source has no status
    text_column = "user"        # a column in which any text will do
    ids_in_file = true          # false: ids are row numbers, so the order of rows means something
    [options]                   # what load() is given
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import polars as pl

GOLDEN = Path(__file__).resolve().parent


def as_text(jobs: pl.DataFrame) -> pl.DataFrame:
    """All columns as text: times as ISO 8601 in UTC, lists joined by '|', structs as JSON, null as ''."""
    columns = []
    for name, dtype in jobs.schema.items():
        column = pl.col(name)
        if isinstance(dtype, pl.Datetime):
            column = column.dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ")
        elif isinstance(dtype, pl.List):
            column = column.cast(pl.List(pl.String)).list.join("|")
        elif isinstance(dtype, pl.Struct):
            column = column.struct.json_encode()
        columns.append(column.cast(pl.String).fill_null("").replace("null", "").alias(name))
    return jobs.select(columns)


def read_sample(name: str) -> dict[str, object]:
    """The sample's description with its defaults."""
    defaults = {"kind": "csv", "has_header": True, "separator": ",", "ids_in_file": True, "options": {}}
    return defaults | tomllib.loads((GOLDEN / name / "sample.toml").read_text(encoding="utf-8"))


def main(name: str) -> None:
    """Write expected.csv from what the loader makes of the sample now, without the columns that are empty."""
    from analysis.loaders import load

    text = as_text(load(name, GOLDEN / name / "raw", **read_sample(name)["options"]).jobs)
    text.select(column for column in text.columns if (text[column] != "").any()).write_csv(
        GOLDEN / name / "expected.csv"
    )


if __name__ == "__main__":
    main(sys.argv[1])
