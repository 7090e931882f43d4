"""Registry of the figures: each draws one result table into axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.errors import HindcastError, UnknownNameError
from analysis.plots.style import SIZE_IN, new_axes, to_png, to_svg

__all__ = ["FIGURES", "FigureSpec", "figure", "render_svg", "write_figures"]

Draw = Callable[..., Axes]


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
    """

    name: str
    title: str
    caption: str
    table: str
    function: Draw
    height_in: Callable[[pl.DataFrame], float]
    has_content: Callable[[pl.DataFrame], bool]

    def draw(self, table: pl.DataFrame, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the table into axes, by default into new ones of the right height; options go to the function."""
        return self.function(table, ax=new_axes(height_in=self.height_in(table)) if ax is None else ax, **options)


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
) -> Callable[[Draw], Draw]:
    """Register a function as the figure ``name``; see `FigureSpec` for the parameters."""

    def register(function: Draw) -> Draw:
        FIGURES[name] = FigureSpec(name, title, caption, table, function, height_in, has_content)
        return function

    return register


def _figure_of(ax: Axes) -> Figure:
    drawn = ax.get_figure(root=True)
    if drawn is None:
        msg = "a figure function returned axes that lie on no figure; it must return the axes that it was given."
        raise HindcastError(msg)
    return drawn


def render_svg(
    name: str, table: pl.DataFrame, *, inline: bool = False, label: str | None = None, **options: Any
) -> str:
    """Draw one figure as SVG text.

    Parameters
    ----------
    name : str
        One of ``FIGURES``.
    table : DataFrame
        What it draws.
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
    return to_svg(_figure_of(spec.draw(table, **options)), name=label or name, title=spec.title, inline=inline)


def write_figures(tables: Mapping[str, pl.DataFrame], folder: Path) -> list[Path]:
    """Write every figure whose table is there and not empty as SVG and PNG.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Result tables by name, as `analysis.characterize.characterize` gives them; "scores" and "gains" may be added.
    folder : Path
        Where the files go; it must exist.

    Returns
    -------
    list of Path
        The files written.
    """
    written = []
    for name, spec in FIGURES.items():
        table = tables.get(spec.table)
        if table is None or not spec.has_content(table):
            continue
        drawn = _figure_of(spec.draw(table))
        svg, png = folder / f"{name}.svg", folder / f"{name}.png"
        svg.write_text(to_svg(drawn, name=name, title=spec.title), encoding="utf-8")
        png.write_bytes(to_png(drawn))
        written += [svg, png]
    return written
