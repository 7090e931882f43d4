"""Chapters of a report on the workload: every registered result table with its figures, in its section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from analysis.characterize import CHARACTERIZATIONS, Characterization
from analysis.characterize.running import known_gpus
from analysis.plots import FIGURES
from analysis.report.blocks import Block, Section, about, figure_block, stacked, table_block
from analysis.report.download import csv_download
from analysis.report.numbers import TableView, transposed_view
from analysis.report.replayed import Replayed
from analysis.trace import Trace

__all__ = ["SECTIONS", "Logs", "section_of", "workload_sections"]

#: Anchor of each section in the order of the page, with its heading and a line of text.
SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "overview": ("Overview", ""),
    "durations": ("Durations", "How long jobs run, and who uses the GPU time."),
    "demand": ("GPU demand", "How many GPUs jobs ask for, and of which kind."),
    "arrivals": ("Arrivals", "When jobs come, and how evenly."),
    "queueing": ("Queueing", "How long jobs wait, and for what."),
    "outcomes": ("Outcomes", "How jobs end, and what is lost when they do not complete."),
    "tenants": ("Users and virtual clusters", "Who uses the cluster, and how alike their jobs are."),
    "utilization": ("Utilization", "How many GPUs are held by jobs, how busy they are, and what lies between."),
    "heterogeneity": ("Heterogeneity", "What differs between types of GPU."),
    "predictability": (
        "Predictability",
        "How well durations can be known beforehand, before any predictor is trained.",
    ),
    "stationarity": ("Stationarity", "Whether the workload stays what it is."),
    "more": ("More tables", ""),
}
#: Sections of tables that do not say theirs, by the module that they stand in.
MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("summary", "headline"), "overview"),
    **dict.fromkeys(("fits", "tails"), "durations"),
    **dict.fromkeys(("sharing", "consolidation"), "demand"),
    "bursts": "arrivals",
    **dict.fromkeys(("delays", "waiting"), "queueing"),
    **dict.fromkeys(("waste", "failures"), "outcomes"),
    **dict.fromkeys(("inequality", "recurring", "vc_load"), "tenants"),
    **dict.fromkeys(("running", "fragmentation", "node_states", "device_use"), "utilization"),
    "look_back": "predictability",
}
#: What opens its section; the others follow in the order of their registration.
FIRST: Final = frozenset({"summary", "duration_cdf", "queueing_delay_cdf", "running_gpus", "status"})
#: Columns of wide tables that are shown; the CSV has them all.
SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "duration_quantiles": (
        *("trace", "bucket", "weight", "num_jobs", "num_right_censored", "mean_s"),
        *("p5_s", "p25_s", "p50_s", "p75_s", "p90_s", "p99_s", "max_s"),
    ),
}
#: Figures that a replay can fill where the log does not say when jobs started.
REPLAYED: Final = ("queueing_delay", "running_gpus")
US_PER_DAY: Final = 86_400_000_000
#: A line for all GPUs is drawn only if the use does not vanish below it.
MOST_TIMES_PEAK: Final = 4.0


@dataclass(frozen=True)
class Logs:
    """Logs by name, and their result tables by name of the table and then of the log."""

    traces: Mapping[str, Trace]
    tables: Mapping[str, Mapping[str, pl.DataFrame]]

    @property
    def is_one(self) -> bool:
        """Whether there is a single log."""
        return len(self.traces) == 1

    def table(self, name: str) -> pl.DataFrame | Mapping[str, pl.DataFrame]:
        """A result table: of the single log, or of each by name."""
        return next(iter(self.tables[name].values())) if self.is_one else self.tables[name]

    def shown(self, name: str) -> pl.DataFrame | None:
        """The table as it is shown where a clock is relative: days since the start for dates; null elsewhere."""
        relative = {log for log, trace in self.traces.items() if trace.meta.clock == "relative"}
        schema = stacked(self.table(name)).schema
        times = [column for column, dtype in schema.items() if dtype.is_temporal() and dtype != pl.Duration]
        if not relative or not times:
            return None
        texts = {
            log: table.with_columns(_time_text(schema[column], column, relative=log in relative) for column in times)
            for log, table in self.tables[name].items()
        }
        return next(iter(texts.values())) if self.is_one else stacked(texts)

    def missing(self, name: str) -> str | None:
        """Why the table is empty for every log; null if it is not. Different reasons are given with their logs."""
        reasons: dict[str, list[str]] = {}
        for log, trace in self.traces.items():
            why = CHARACTERIZATIONS[name].missing(trace, self.tables[name][log])
            if why is None:
                return None
            reasons.setdefault(why, []).append(log)
        if len(reasons) == 1:
            return next(iter(reasons))
        return " ".join(f"{', '.join(logs)}: {why}" for why, logs in reasons.items())


def _time_text(dtype: pl.DataType, column: str, *, relative: bool) -> pl.Expr:
    """Write instants as days since the start of a log, or as dates."""
    time = pl.col(column)
    if relative:
        return pl.format("day {}", (time.cast(pl.Datetime("us")).dt.timestamp("us") / US_PER_DAY).round(1)).alias(
            column
        )
    return time.dt.strftime("%Y-%m-%d" if dtype == pl.Date else "%Y-%m-%d %H:%M")


def section_of(item: Characterization) -> str:
    """Anchor of the section that a result table stands in."""
    own = str(getattr(item, "section", "") or "")
    module = item.function.__module__.rsplit(".", 1)[-1]
    found = own or MODULES.get(module, module)
    return found if found in SECTIONS else "more"


def workload_sections(logs: Logs, replayed: Replayed) -> list[Section]:
    """Make the sections on the workload of one log or of several side by side; a section without content is left out.

    Parameters
    ----------
    logs : Logs
        The logs and their tables.
    replayed : Replayed
        Tables of replays, of a single log.
    """
    made = []
    for anchor, (title, text) in SECTIONS.items():
        section = Section(anchor, title, text)
        for name in sorted(CHARACTERIZATIONS, key=lambda name: name not in FIRST):
            if section_of(CHARACTERIZATIONS[name]) == anchor and name in logs.tables:
                _fill(section, name, logs, replayed)
        if anchor != "overview":
            # Figures side by side first, then tables in full width, then those that are folded away.
            section.blocks.sort(key=lambda block: 0 if block.svg else 1 + block.is_folded)
        if section.blocks or section.missing:
            made.append(section)
    return made


def _fill(section: Section, name: str, logs: Logs, replayed: Replayed) -> None:
    """Add a result table to its section: figures, then the table, in one block if there is one figure."""
    if name == "summary":
        section.blocks += _summary_blocks(logs)
        return
    reason = logs.missing(name)
    if reason is not None:
        _say_missing(section, name, reason, replayed)
        return
    table = logs.table(name)
    figures = [figure for figure, spec in FIGURES.items() if spec.table == name and spec.content_of(table)]
    blocks = [figure_block(figure, table, **_figure_options(figure, logs)) for figure in figures]
    whole = table_block(name, stacked(table), shown=logs.shown(name), columns=SHOWN.get(name))
    if len(blocks) == 1:
        # The table belongs to the figure: one card, the table folded below.
        blocks[0].table, blocks[0].download, blocks[0].is_folded = whole.table, whole.download, True
    else:
        whole.is_folded = whole.is_folded or bool(blocks)
        whole.is_wide = whole.is_wide or bool(blocks)
        blocks.append(whole)
    section.blocks += blocks


def _say_missing(section: Section, name: str, reason: str, replayed: Replayed) -> None:
    figures = [figure for figure in REPLAYED if FIGURES[figure].table == name]
    for figure in figures:
        section.blocks += _from_replays(figure, replayed, reason=reason)
    if figures and not replayed.tables:
        reason = f"{reason} A replay would show it; none was made."
    section.missing.setdefault(reason, []).append(CHARACTERIZATIONS[name].title)


def _from_replays(name: str, replayed: Replayed, *, reason: str) -> list[Block]:
    blocks = []
    for policy, tables in replayed.tables.items():
        none = f"{reason} In the replay under {policy} no job finished."
        block = figure_block(name, tables[FIGURES[name].table], missing=none, label=f"{name}-{policy}")
        block.title = f"{block.title}: replayed under {policy}"
        if block.svg:
            where = replayed.where[policy]
            block.text = f"{reason} This is not the log but its replay under {policy} on {where}. {block.text}"
        blocks.append(block)
    return blocks


def _figure_options(name: str, logs: Logs) -> dict[str, Any]:
    """Options of a figure that come from the log: a line for all GPUs, where the use does not vanish below it."""
    if name != "running_gpus" or not logs.is_one:
        return {}
    (log, trace), *_ = logs.traces.items()
    total, peak = known_gpus(trace), logs.tables[name][log]["max_gpus"].max()
    fits = total and isinstance(peak, int | float) and total <= MOST_TIMES_PEAK * peak
    return {"total_gpus": total} if fits else {}


def _summary_blocks(logs: Logs) -> list[Block]:
    """Counts and measures of the summary that mean something for these logs, a column per log."""
    shown = pl.concat([_meaningful(trace, logs.tables["summary"][log], log) for log, trace in logs.traces.items()])
    counts = [name for name, dtype in shown.schema.items() if not dtype.is_float()]
    measures = [name for name in shown.columns if name not in counts]
    parts: list[tuple[str, TableView]] = [
        ("How much", transposed_view(shown, columns=counts)),
        ("How long and how large", transposed_view(shown, columns=measures)),
    ]
    blocks = [
        Block(title, definition=about("summary"), table=view, is_wide=len(view.head) > 3) for title, view in parts
    ]
    blocks[0].download = csv_download("summary", stacked(logs.table("summary")))
    return [block for block in blocks if block.table and block.table.rows]


def _meaningful(trace: Trace, summary: pl.DataFrame, log: str) -> pl.DataFrame:
    """Summary of a log, with null for what would mislead: dates on a relative clock, nobody where nobody is named."""
    hidden = [name for name in ("num_users", "num_vcs") if not summary[name][0]]
    hidden += ["peak_daily_users"] if "num_users" in hidden else []
    if trace.meta.clock == "relative":
        hidden += [name for name, dtype in summary.schema.items() if dtype.is_temporal()]
    nothing = [pl.lit(None, dtype=summary.schema[name]).alias(name) for name in hidden]
    return summary.with_columns(*nothing, trace=pl.lit(log))
