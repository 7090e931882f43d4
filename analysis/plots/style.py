"""How every figure looks: colours, axes of time and shares, and SVG or PNG bytes that are the same on every run."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

__all__ = [
    "DURATION_TICKS",
    "INK",
    "PALETTE",
    "SIZE_IN",
    "bar_style",
    "duration_axis",
    "duration_text",
    "duration_y_axis",
    "legend",
    "line_style",
    "log_label",
    "new_axes",
    "new_panels",
    "share_axis",
    "short_duration",
    "style_axes",
    "to_png",
    "to_svg",
]

#: What no XML may hold.
CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: Colour of text and lines of the frame; an inline SVG turns it into the colour of the page's text.
INK: Final = "#1b1c1d"
#: Colours that colour-blind people tell apart, without black (ink) and yellow (too faint on white).
#: M. Okabe and K. Ito, "Color Universal Design", 2008, https://jfly.uni-koeln.de/color/
PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8c8c8c")
#: A curve differs from its neighbours by more than its colour, for print in grey.
DASHES: Final = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)), (0, (1, 2)))
#: Of lines only: dots make an SVG ten times as large.
HATCHES: Final = ("", "////", r"\\\\", "xxxx", "----", "||||", "++++")
#: Narrow, so that a figure is legible on a telephone without zooming and in a column of print.
SIZE_IN: Final = (4.4, 3.1)
#: Room for the name above a panel.
TITLE_IN: Final = 0.22
#: A longer name of a log or tenant is cut in figures.
LABEL_LENGTH: Final = 16
TEXT_PT: Final = 9
SMALL_PT: Final = 8

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
DURATION_TICKS: Final = (1, 10, MINUTE, 10 * MINUTE, HOUR, 5 * HOUR, DAY, 10 * DAY, 100 * DAY, 1000 * DAY)


def new_axes(*, width_in: float = SIZE_IN[0], height_in: float = SIZE_IN[1]) -> Axes:
    """Make axes on a figure of their own, without pyplot and its global state."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


def new_panels(heights_in: Mapping[str, float], *, width_in: float = SIZE_IN[0]) -> dict[str, Axes]:
    """Make axes one below the other on one figure, each of its own height [inch] and with its name above it."""
    heights = [height + TITLE_IN for height in heights_in.values()]
    figure = Figure(figsize=(width_in, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    axes = {}
    for part, name in zip(parts, heights_in, strict=True):
        part.suptitle(log_label(name), x=0.02, ha="left", fontsize=TEXT_PT, fontweight="bold", color=INK)
        axes[name] = part.subplots()
    return axes


def style_axes(ax: Axes, *, grid: str = "both") -> Axes:
    """Give axes the common look; call it last, when labels and ticks are set."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for spine in ax.spines.values():
        spine.set_color(INK)
    ax.tick_params(colors=INK, labelsize=SMALL_PT, which="both")
    for text in (ax.xaxis.label, ax.yaxis.label):
        text.set_color(INK)
        text.set_fontsize(TEXT_PT)
    ax.title.set_color(INK)
    ax.title.set_fontsize(TEXT_PT)
    ax.set_axisbelow(True)
    if grid != "none":
        ax.grid(
            visible=True, axis="x" if grid == "x" else "y" if grid == "y" else "both", color=INK, alpha=0.15, lw=0.6
        )
    return ax


def legend(ax: Axes, *, title: str = "", num_columns: int = 1, place: str = "best", last: str = "") -> None:
    """Add a legend without a frame, in ink; "outside" puts it above the axes; the label ``last`` closes it."""
    handles, labels = ax.get_legend_handles_labels()
    shown = sorted(zip(handles, labels, strict=True), key=lambda entry: entry[1] == last)
    # Flush right: to the left there is room for it above the labels of the y axis.
    where = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0)} if place == "outside" else {"loc": place}
    box = ax.legend(
        [handle for handle, _ in shown],
        [label for _, label in shown],
        title=title or None,
        ncols=num_columns,
        frameon=False,
        fontsize=SMALL_PT,
        title_fontsize=SMALL_PT,
        labelcolor=INK,
        handlelength=2.2,
        columnspacing=1.2,
        **where,
    )
    box.get_title().set_color(INK)


def log_label(name: str) -> str:
    """Name of a log as a figure writes it: cut, and without the sign that would begin a formula."""
    cut = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
    return cut.replace("$", r"\$")


def line_style(index: int) -> dict[str, Any]:
    """Colour and dashes of the curve with this number."""
    # When the colours begin again, the dashes are others.
    dashes = DASHES[(index + index // len(PALETTE)) % len(DASHES)]
    return {"color": PALETTE[index % len(PALETTE)], "linestyle": dashes, "linewidth": 1.6}


def bar_style(index: int) -> dict[str, Any]:
    """Colour and hatching of the bars with this number, for print in grey too."""
    hatch = HATCHES[(index + index // len(PALETTE)) % len(HATCHES)]
    # Hatches take the colour of the edge; white is seen on every colour of the palette.
    return {"color": PALETTE[index % len(PALETTE)], "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def duration_text(seconds: float) -> str:
    """Write a duration in the largest unit that leaves a number of at least 1.

    Examples
    --------
    >>> [duration_text(s) for s in (0.5, 90, 5400, 200000)]
    ['0.5 s', '1.5 min', '1.5 h', '2.31 d']
    """
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}" if abs(seconds) < 1000 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.3g} s"


def short_duration(seconds: float, _place: int = 0) -> str:
    """Write a duration on an axis, where ticks lie on whole units."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def duration_axis(ax: Axes, *, label: str, largest: float) -> None:
    """Make the x axis a logarithmic one of durations from 1 s, with ticks in units that people use."""
    ax.set_xscale("log")
    ax.set_xlim(1.0, max(largest, 10.0))
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in DURATION_TICKS if tick <= max(largest, 10.0)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(short_duration))
    ax.set_xlabel(label)


def duration_y_axis(ax: Axes, *, label: str) -> None:
    """Make the y axis a logarithmic one of durations, from a tick below the lowest value to one above the highest."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(
        max((tick for tick in DURATION_TICKS if tick <= low), default=DURATION_TICKS[0]),
        min((tick for tick in DURATION_TICKS if tick >= high), default=high),
    )
    ax.yaxis.set_major_locator(FixedLocator(list(DURATION_TICKS)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(short_duration))
    ax.set_ylabel(label)


def share_axis(ax: Axes, *, label: str, axis: str = "y", largest: float | None = None) -> None:
    """Make an axis one of shares, written in percent; ``largest`` ends it."""
    chosen = ax.yaxis if axis == "y" else ax.xaxis
    chosen.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    if axis == "y":
        ax.set_ylabel(label)
        ax.set_ylim(0, largest)
    else:
        ax.set_xlabel(label)
        ax.set_xlim(0, largest)


def to_svg(figure: Figure, *, name: str, title: str = "", inline: bool = False) -> str:
    """Draw a figure as SVG text, the same bytes on every run.

    Parameters
    ----------
    figure : Figure
        What to draw.
    name : str
        Prefix of every id in the file, so that several figures can share one page.
    title : str
        What a screen reader says.
    inline : bool, default False
        For a page: no XML header, transparent, scaled by the page, and ink drawn in the colour of the page's text, so
        that it is legible on light and on dark. Otherwise a file of its own on white.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["DejaVu Sans"]}):
        _save(
            figure,
            buffer,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            transparent=inline,
            facecolor="none" if inline else "white",
        )
    # XML has no control characters, not even escaped ones.
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", buffer.getvalue())
    label = escape(CONTROL.sub(" ", title or name), quote=True)
    text = text[text.index("<svg") :] if inline else text
    if inline:
        text = re.sub(r'<svg ([^>]*?)height="[\d.]+pt"', r"<svg \1", text, count=1)
        text = re.sub(r'<svg ([^>]*?)width="[\d.]+pt"', r"<svg \1", text, count=1)
        text = text.replace(INK, "currentColor").replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
        # A page is not XML: it needs no name spaces, and the contract is that nothing in it looks like an address.
        text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return _prefix_ids(text, prefix=name)


def _prefix_ids(text: str, *, prefix: str) -> str:
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    return re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)


def to_png(figure: Figure, *, dots_per_inch: int = 160) -> bytes:
    """Draw a figure as PNG on white, the same bytes on every run."""
    buffer = io.BytesIO()
    _save(figure, buffer, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _save(figure: Figure, buffer: io.BytesIO | io.StringIO, **options: Any) -> None:
    # Names of any script: a browser has the letters that the font of the measurements lacks, a PNG shows boxes.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(buffer, **options)


def unique(values: Iterable[str]) -> list[str]:
    """Values in the order in which they first occur."""
    return list(dict.fromkeys(values))
