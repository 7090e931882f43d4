"""The parts of a report: sections of blocks, each a figure, a table with its download, or what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from analysis.characterize import CHARACTERIZATIONS
from analysis.plots import FIGURES, Tables, by_log, render_svg
from analysis.report.download import Download, csv_download
from analysis.report.numbers import TableView, table_view, transposed_view

__all__ = ["Block", "Section", "about", "figure_block", "limit_downloads", "stacked", "table_block"]

#: Rows of a table that are shown; its CSV has them all.
MOST_ROWS: Final = 40
#: A table of more rows is folded away at first.
MOST_OPEN_ROWS: Final = 16
#: A table with more columns needs the whole width.
MOST_NARROW_COLUMNS: Final = 5
#: Values of more logs side by side need the whole width.
MOST_NARROW_LOGS: Final = 2


@dataclass
class Block:
    """One thing to read.

    Attributes
    ----------
    title, text, definition : str
        Heading; a line below it; what exactly is counted, with its source. Empty = none.
    svg : str
        An inline figure; empty = none.
    table : TableView or None
        A table, or null.
    download : Download or None
        The table as a file, or null.
    sources : str
        Where the numbers of a table come from; empty = from the log.
    missing : str
        The sentence that stands instead of what the log cannot fill; empty = nothing is missing.
    is_wide : bool
        Whether it needs the whole width.
    is_folded : bool
        Whether the table is folded away at first.
    """

    title: str
    text: str = ""
    definition: str = ""
    svg: str = ""
    table: TableView | None = None
    download: Download | None = None
    sources: str = ""
    missing: str = ""
    is_wide: bool = False
    is_folded: bool = False


@dataclass
class Section:
    """A chapter: an anchor, a heading, a line of text, its blocks, and titles of what is missing by the reason why."""

    anchor: str
    title: str
    text: str = ""
    blocks: list[Block] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)


def about(name: str) -> str:
    """What a result table counts, and whose definition that is; empty for a table that is no characterization."""
    item = CHARACTERIZATIONS.get(name)
    if item is None:
        return ""
    source = str(getattr(item, "source", ""))
    return f"{item.definition} Source: {source.rstrip('.')}." if source else item.definition


def figure_block(
    name: str, table: Tables | None, *, missing: str | None = None, label: str | None = None, **options: Any
) -> Block:
    """Make the block of a figure, or of the sentence that stands for it.

    Parameters
    ----------
    name : str
        One of ``FIGURES``.
    table : DataFrame, or mapping of str to DataFrame, or None
        What it draws; of several logs by their names.
    missing : str, optional
        Why there is nothing to draw.
    label : str, optional
        Prefix of the ids, where a page shows a figure twice.
    **options
        Keyword arguments of the figure.
    """
    spec = FIGURES[name]
    if table is None or not (content := spec.content_of(table)):
        return Block(spec.title, missing=missing or "The log holds nothing that this figure could show.")
    several = len(content) > 1
    text = spec.compared_caption if several and spec.compared_caption else spec.caption
    svg = render_svg(name, table, inline=True, label=label, **options)
    return Block(spec.title, text=text, definition=about(spec.table), svg=svg)


def table_block(
    name: str,
    table: pl.DataFrame,
    *,
    title: str = "",
    shown: pl.DataFrame | None = None,
    columns: tuple[str, ...] | None = None,
    is_folded: bool | None = None,
) -> Block:
    """Make the block of a table: its first rows, all of it as a download, folded if it is long.

    Parameters
    ----------
    name : str
        Name of the result table and of its file.
    table : DataFrame
        The table.
    title : str
        Heading; by default the title of the characterization.
    shown : DataFrame, optional
        What is shown instead of it; the download stays.
    columns : tuple of str, optional
        Which columns are shown; by default all.
    is_folded : bool, optional
        By default a long table is.
    """
    item = CHARACTERIZATIONS.get(name)
    seen = table if shown is None else shown
    if _is_row_per_log(seen):
        view = transposed_view(seen, columns=columns)
    else:
        view = table_view(seen, columns=columns, max_rows=MOST_ROWS)
    return Block(
        title or (item.title if item else name.replace("_", " ").capitalize()),
        definition=about(name),
        table=view,
        download=csv_download(name, table),
        is_wide=len(view.head) > (MOST_NARROW_COLUMNS if view.is_sortable else MOST_NARROW_LOGS + 1),
        is_folded=len(view.rows) > MOST_OPEN_ROWS if is_folded is None else is_folded,
    )


def _is_row_per_log(table: pl.DataFrame) -> bool:
    """Whether a table reads better from top to bottom: many values of one log, or of a few that have one row each."""
    rows = table["trace"].n_unique() if "trace" in table.columns else 1
    numbers = sum(dtype.is_numeric() for dtype in table.dtypes)
    return table.height == rows <= MOST_NARROW_COLUMNS < table.width and 2 * numbers > table.width


def stacked(tables: Tables) -> pl.DataFrame:
    """One table of several logs: the log's name comes first, in a column ``trace``; a single table stays as it is.

    Examples
    --------
    >>> stacked({"a": pl.DataFrame({"x": [1]}), "b": pl.DataFrame({"x": [2]})}).rows()
    [('a', 1), ('b', 2)]
    """
    if isinstance(tables, pl.DataFrame):
        return tables
    named = [
        table.select(pl.lit(log, dtype=pl.String).alias("trace"), pl.exclude("trace"))
        for log, table in by_log(tables).items()
    ]
    return pl.concat(named, how="diagonal_relaxed")


def limit_downloads(sections: Sequence[Section], *, most_bytes: int) -> None:
    """Take the largest downloads out of the page until the others fit; their size stays, to say what is left out."""
    blocks = [block for section in sections for block in section.blocks if block.download and block.download.address]
    sizes: Mapping[int, int] = {id(block): len(block.download.address) for block in blocks if block.download}
    total = sum(sizes.values())
    for block in sorted(blocks, key=lambda one: sizes[id(one)], reverse=True):
        if total <= most_bytes or block.download is None:
            return
        total -= sizes[id(block)]
        block.download = Download(block.download.file_name, "", block.download.size)
