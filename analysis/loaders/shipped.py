"""Public logs that the ``table`` loader reads with a column map that ships with hindcast (``maps/*.toml``).

Source, licence, period, zone, what a row is and what must be assumed stand in each map. Each is a loader of its own:
``hindcast load graham FILE`` and ``hindcast load table FILE --map graham`` are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.loaders.column_map import SHIPPED, ColumnMap, parse_map
from analysis.loaders.delimited import has_columns
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import Read, Sniff, loader
from analysis.loaders.table import read_table
from analysis.trace import Trace

__all__ = ["register_maps"]


def register_maps() -> None:
    """Make a loader of every map that ships with hindcast."""
    for name in SHIPPED:
        given = parse_map(name)
        register = loader(
            name,
            summary=given.summary or name,
            files=f"one table: {', '.join(given.header)}, …",
            sniff=_sniff(given),
        )
        register(_reader(name, given))


def _sniff(given: ColumnMap) -> Sniff:
    # Of two maps that fit, the one that asks for more columns is the right one.
    sure = 0.9 + min(len(given.header), 99) / 1000

    def sniff(paths: Sequence[Path]) -> float:
        return sure if any(has_columns(path, given.header) for path in paths) else 0.0

    return sniff


def _reader(name: str, given: ColumnMap) -> Read:
    trace_name = name

    def read(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
        roles = {"table": lambda path: has_columns(path, given.header)}
        path = assign_roles(paths, main="table", roles=roles, loader=trace_name)["table"]
        return read_table([path], columns=trace_name, timezone=timezone, name=name)

    return read


register_maps()
