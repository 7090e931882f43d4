"""Registry of the figures: each draws one result table into axes, of one log or of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.errors import HindcastError, UnknownNameError
from analysis.plots.style import SIZE_IN, new_axes, new_panels, to_png, to_svg

__all__ = ["FIGURES", "FigureSpec", "Tables", "by_log", "figure", "render_svg", "write_figure", "write_figures"]

Draw = Callable[..., Axes]
#: A result table, or the same one of several logs by the log's name.
Tables = pl.DataFrame | Mapping[str, pl.DataFrame]


def by_log(table: Tables) -> dict[str, pl.DataFrame]:
    """Tables by the log's name; a single table has the name "".

    Examples
    --------
    >>> list(by_log(pl.DataFrame({"x": [1]})))
    ['']
    """
    return {"": table} if isinstance(table, pl.DataFrame) else dict(table)


@dataclass(frozen=True)
class FigureSpec:
    """One figure.

    Attributes
    ----------
    name, title, caption : str
        Name of the figure and its files; a heading; how to read it, in a sentence or two.
    table : str
        Name of the result table that it draws: one of ``CHARACTERIZATIONS``, or "scores", "predictions", "gains".
    function : callable
        ``function(table, ax=ax) -> ax``.
    height_in : callable of DataFrame
        Height for this table [inch]; a figure with a row per item grows with them.
    has_content : callable of DataFrame
        Whether the table holds what this figure draws.
    compares : bool
        Whether the function also takes the tables of several logs (mapping of name to table) and draws them into one
        axes; otherwise several logs are drawn as panels, one below the other.
    compared_caption : str
        How to read the figure of several logs; empty = as that of one.
    compared_height_in : callable of mapping of str to DataFrame
        Height of the figure of several logs in one axes [inch].
    """

    name: str
    title: str
    caption: str
    table: str
    function: Draw
    height_in: Callable[[pl.DataFrame], float]
    has_content: Callable[[pl.DataFrame], bool]
    compares: bool = False
    compared_caption: str = ""
    compared_height_in: Callable[[Mapping[str, pl.DataFrame]], float] = lambda tables: SIZE_IN[1] + 0.1 * len(tables)

    def content_of(self, table: Tables) -> dict[str, pl.DataFrame]:
        """Tables, by log, that hold what this figure draws."""
        return {log: part for log, part in by_log(table).items() if self.has_content(part)}

    def draw(self, table: Tables, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw into axes, by default into new ones of the right height; options go to the function.

        Parameters
        ----------
        table : DataFrame or mapping of str to DataFrame
            The result table; of several logs by name only where the figure ``compares``.
        ax : Axes, optional
            Where to draw.
        """
        if isinstance(table, pl.DataFrame):
            height_in = self.height_in(table)
        elif self.compares:
            table = self.content_of(table)
            height_in = self.compared_height_in(table)
        else:
            msg = f"figure {self.name!r} draws one log into one axes, not {len(table)}; 'draw_figure' makes panels."
            raise HindcastError(msg)
        return self.function(table, ax=new_axes(height_in=height_in) if ax is None else ax, **options)

    def draw_figure(self, table: Tables, **options: Any) -> Figure:
        """Draw a whole figure: one axes, or a panel per log where several do not share one."""
        tables = self.content_of(table)
        if len(tables) == 1 and (isinstance(table, pl.DataFrame) or not self.compares):
            return _figure_of(self.draw(next(iter(tables.values())), **options))
        if self.compares:
            return _figure_of(self.draw(tables, **options))
        panels = new_panels({log: self.height_in(part) for log, part in tables.items()})
        for log, ax in panels.items():
            self.draw(tables[log], ax=ax, **options)
        return _figure_of(next(iter(panels.values())))


#: Every figure by name, in the order of a report.
FIGURES: Final[dict[str, FigureSpec]] = {}


def _usual_height(table: pl.DataFrame) -> float:
    del table
    return SIZE_IN[1]


def _any_rows(table: pl.DataFrame) -> bool:
    return table.height > 0


def figure(
    name: str,
    *,
    table: str,
    title: str,
    caption: str,
    height_in: Callable[[pl.DataFrame], float] = _usual_height,
    has_content: Callable[[pl.DataFrame], bool] = _any_rows,
    **several: Any,
) -> Callable[[Draw], Draw]:
    """Register a function as the figure ``name``; see `FigureSpec` for the parameters.

    ``several`` takes compares, compared_caption and compared_height_in, for a function that also draws several logs.
    """

    def register(function: Draw) -> Draw:
        FIGURES[name] = FigureSpec(name, title, caption, table, function, height_in, has_content, **several)
        return function

    return register


def _figure_of(ax: Axes) -> Figure:
    drawn = ax.get_figure(root=True)
    if drawn is None:
        msg = "a figure function returned axes that lie on no figure; it must return the axes that it was given."
        raise HindcastError(msg)
    return drawn


def render_svg(name: str, table: Tables, *, inline: bool = False, label: str | None = None, **options: Any) -> str:
    """Draw one figure as SVG text.

    Parameters
    ----------
    name : str
        One of ``FIGURES``.
    table : DataFrame or mapping of str to DataFrame
        What it draws: the result table, or that of several logs by the log's name.
    inline : bool, default False
        As in `analysis.plots.style.to_svg`.
    label : str, optional
        Prefix of the ids in the file, where one page shows a figure twice; by default the name.
    options
        Keyword arguments of the figure's function.

    Returns
    -------
    str
        SVG text.

    Raises
    ------
    UnknownNameError
        If there is no such figure.
    """
    if name not in FIGURES:
        raise UnknownNameError(kind="figure", found=name, known=FIGURES)
    spec = FIGURES[name]
    return to_svg(spec.draw_figure(table, **options), name=label or name, title=spec.title, inline=inline)


def write_figures(tables: Mapping[str, Tables], folder: Path, *, names: Iterable[str] | None = None) -> list[Path]:
    """Write every figure whose table is there and not empty as SVG and PNG.

    Parameters
    ----------
    tables : mapping of str to DataFrame, or to mapping of str to DataFrame
        Result tables by name, as `analysis.characterize.characterize` gives them; "scores" and "gains" may be added.
        For several logs, by name of the table and then of the log.
    folder : Path
        Where the files go; it must exist.
    names : iterable of str, optional
        Which of ``FIGURES``; by default all.

    Returns
    -------
    list of Path
        The files written.
    """
    written = []
    for name in FIGURES if names is None else names:
        spec = FIGURES[name]
        table = tables.get(spec.table)
        if table is None or not spec.content_of(table):
            continue
        written += write_figure(name, table, folder)
    return written


def write_figure(name: str, table: Tables, folder: Path, *, file_name: str | None = None) -> list[Path]:
    """Write one figure as SVG and PNG.

    Parameters
    ----------
    name : str
        One of ``FIGURES``.
    table : DataFrame or mapping of str to DataFrame
        What it draws.
    folder : Path
        Where the files go; it must exist.
    file_name : str, optional
        Without extension, and prefix of the ids in the SVG; by default the figure's name.

    Returns
    -------
    list of Path
        The two files.
    """
    spec, stem = FIGURES[name], file_name or name
    drawn = spec.draw_figure(table)
    svg, png = folder / f"{stem}.svg", folder / f"{stem}.png"
    svg.write_text(to_svg(drawn, name=stem, title=spec.title), encoding="utf-8")
    png.write_bytes(to_png(drawn))
    return [svg, png]
