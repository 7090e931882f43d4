"""What stands in a report: sections of blocks, each a figure, a table, or the sentence that says what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.characterize import CHARACTERIZATIONS
from analysis.characterize.running import known_gpus
from analysis.plots import FIGURES, render_svg
from analysis.report.numbers import TableView, table_view, transposed_view
from analysis.report.replayed import Replayed
from analysis.trace import Trace

__all__ = ["Block", "Section", "gains_section", "quality_section", "scores_section", "workload_sections"]

#: A line for all GPUs is drawn only if the use does not vanish below it.
MOST_TIMES_PEAK: Final = 4.0
DURATION_COLUMNS: Final = (
    *("bucket", "weight", "num_jobs", "num_right_censored", "mean_s"),
    *("p5_s", "p25_s", "p50_s", "p75_s", "p90_s", "p99_s", "max_s"),
)
SCORE_COLUMNS: Final = ("model", "log_mae", "within_2x", "spearman", "r2_log", "mae_s", "num_train", "num_test")
GAIN_COLUMNS: Final = (
    *("pair", "predictor", "base_mean_jct_s", "mean_jct_s", "gain_s", "gain_low_s", "gain_high_s"),
    *("relative_gain", "captured_share", "base_mean_queueing_delay_s", "mean_queueing_delay_s", "num_jobs"),
)


SHARE_TEXT: Final = (
    "100 % = as good as knowing every duration, 0 % = no better than the base. Where knowing nothing has a share too, "
    "that much is the policy's own and needs no predictions."
)


@dataclass
class Block:
    """One thing to read.

    Attributes
    ----------
    title, text, definition : str
        Heading; a line below it; what exactly is counted. Empty = none.
    svg : str
        An inline figure; empty = none.
    table : TableView or None
        A table, or null.
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
    missing: str = ""
    is_wide: bool = False
    is_folded: bool = False


@dataclass
class Section:
    """A chapter: an anchor, a heading, a line of text, and its blocks."""

    anchor: str
    title: str
    text: str = ""
    blocks: list[Block] = field(default_factory=list)


def figure_block(
    name: str, table: pl.DataFrame | None, *, missing: str | None, label: str | None = None, **options: Any
) -> Block:
    """Make the block of a figure, or of the sentence that stands for it."""
    spec = FIGURES[name]
    item = CHARACTERIZATIONS.get(spec.table)
    definition = item.definition if item else ""
    if table is None or not spec.has_content(table):
        return Block(spec.title, missing=missing or "The log holds nothing that this figure could show.")
    svg = render_svg(name, table, inline=True, label=label, **options)
    return Block(spec.title, text=spec.caption, definition=definition, svg=svg)


def _summary_views(trace: Trace, summary: pl.DataFrame) -> list[tuple[str, TableView]]:
    """Counts and measures of the summary that mean something for this log."""
    shown = summary.drop("trace")
    if trace.meta.clock == "relative":
        shown = shown.drop(pl.selectors.temporal())
    # Nobody named is not the same as nobody there.
    unnamed = [name for name in ("num_users", "num_vcs") if not summary[name][0]]
    shown = shown.drop(*unnamed, *(["peak_daily_users"] if "num_users" in unnamed else []))
    counts = tuple(name for name, dtype in shown.schema.items() if not dtype.is_float())
    measures = tuple(name for name in shown.columns if name not in counts)
    return [
        ("How much", transposed_view(shown, columns=counts)),
        ("How long and how large", transposed_view(shown, columns=measures)),
    ]


def _logged(trace: Trace, tables: Mapping[str, pl.DataFrame], *names: str) -> list[Block]:
    return [
        figure_block(name, tables[FIGURES[name].table], missing=CHARACTERIZATIONS[FIGURES[name].table].missing(trace))
        for name in names
    ]


def _table_blocks(tables: Mapping[str, pl.DataFrame], name: str, **view: Any) -> list[Block]:
    """Make the block of a result table; none where it is empty, for its figure says why."""
    if not tables[name].height:
        return []
    item = CHARACTERIZATIONS[name]
    return [Block(item.title, definition=item.definition, table=table_view(tables[name], **view), is_wide=True)]


def workload_sections(trace: Trace, tables: Mapping[str, pl.DataFrame], replayed: Replayed) -> list[Section]:
    """Sections on the workload: size, durations, demand, outcomes, arrivals, waits and use, tenants."""
    overview = [
        Block(title, definition=CHARACTERIZATIONS["summary"].definition, table=view)
        for title, view in _summary_views(trace, tables["summary"])
    ]
    durations = _logged(trace, tables, "duration_cdf", "duration_cdf_gpu_time")
    durations += _table_blocks(tables, "duration_quantiles", columns=DURATION_COLUMNS)
    return [
        Section("overview", "Overview", blocks=overview),
        Section("durations", "Durations", blocks=durations),
        Section(
            "demand",
            "GPU demand and outcomes",
            blocks=[
                *_logged(trace, tables, "gpu_demand", "status"),
                *_table_blocks(tables, "gpu_demand"),
                *_table_blocks(tables, "status"),
            ],
        ),
        Section("arrivals", "Arrivals", blocks=_logged(trace, tables, "arrivals_by_hour", "arrivals_over_time")),
        Section("waits", "Queueing delay and GPUs in use", blocks=_waits_and_use(trace, tables, replayed)),
        Section("tenants", "Users and virtual clusters", blocks=_logged(trace, tables, "top_vcs", "top_users")),
    ]


def _waits_and_use(trace: Trace, tables: Mapping[str, pl.DataFrame], replayed: Replayed) -> list[Block]:
    blocks = []
    for name in ("queueing_delay", "running_gpus"):
        table_name = FIGURES[name].table
        missing = CHARACTERIZATIONS[table_name].missing(trace)
        if missing is None:
            options: dict[str, Any] = _total_gpus(trace, tables) if name == "running_gpus" else {}
            blocks.append(figure_block(name, tables[table_name], missing=None, **options))
        elif replayed.tables:
            blocks += _from_replays(name, replayed, reason=missing)
        else:
            blocks.append(Block(FIGURES[name].title, missing=f"{missing} A replay would show it; none was made."))
    return blocks + _table_blocks(tables, "queueing_delay")


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


def _total_gpus(trace: Trace, tables: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    total, peak = known_gpus(trace), tables["running_gpus"]["max_gpus"].max()
    if total and isinstance(peak, int | float) and total <= MOST_TIMES_PEAK * peak:
        return {"total_gpus": total}
    return {}


def scores_section(scores: pl.DataFrame | None, predictions: pl.DataFrame | None) -> Section:
    """Section on predictors."""
    section = Section(
        "predictors",
        "Predictors",
        text="Durations predicted at submission, from what was known then, and compared with what happened.",
    )
    if scores is None or not scores.height:
        section.blocks = [Block("Predictor scores", missing="No predictor was scored on this log (see the notes).")]
        return section
    section.blocks = [figure_block("predictor_scores", scores, missing=None)]
    if predictions is not None and FIGURES["prediction_errors"].has_content(predictions):
        section.blocks.append(figure_block("prediction_errors", predictions, missing=None))
    columns = tuple(name for name in SCORE_COLUMNS if name in scores.columns) or None
    section.blocks.append(Block("Scores", table=table_view(scores, columns=columns), is_wide=True))
    return section


def gains_section(gains: pl.DataFrame | None) -> Section:
    """Section on policies compared, with a table per cluster."""
    section = Section(
        "policies",
        "Policies compared",
        text=(
            "The same jobs replayed under pairs of policies, like for like: strict with strict, skip with skip. "
            "'Knows nothing' predicts the same duration for every job, the oracle knows them all; what a "
            "predictor is worth lies between the two."
        ),
    )
    if gains is None or not gains.height:
        section.blocks = [Block("Policies compared", missing="No policies were compared on this log (see the notes).")]
        return section
    section.blocks = [
        figure_block("policies", gains, missing=None),
        figure_block("captured_share", gains, missing=_no_share(gains)),
    ]
    for (cluster,), part in gains.partition_by("cluster", as_dict=True, maintain_order=True).items():
        load = part["offered_load"][0]
        text = f"{int(part['num_gpus'][0]):,} GPUs" + (f", load {load:.2f}" if load is not None else "")
        text += "".join(f". {pairs}: {reason}" for pairs, reason in _reasons(part)) + "."
        place = f"{cluster} cluster"
        jct, share = side_by_side(part, "mean_jct_s"), side_by_side(part, "captured_share")
        every = table_view(part, columns=GAIN_COLUMNS)
        section.blocks += [
            Block(f"Mean completion time, {place}", text=text, table=jct, is_wide=True),
            Block(f"Share of the oracle's gain, {place}", text=SHARE_TEXT, table=share, is_wide=True),
            Block(f"All numbers, {place}", table=every, is_wide=True, is_folded=True),
        ]
    return section


def _reasons(part: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs without a share by the reason why."""
    known = part.filter(pl.col("reason").is_not_null()).select("pair", "reason").unique(maintain_order=True)
    grouped = known.group_by("reason", maintain_order=True).agg(pl.col("pair").str.join(", "))
    return list(grouped.select("pair", "reason").iter_rows())


def side_by_side(part: pl.DataFrame, column: str) -> TableView:
    """One row per pair of policies: the base, then one column per prediction."""
    names = part["predictor"].unique(maintain_order=True).to_list()
    base = ["base_mean_jct_s"] if column == "mean_jct_s" else []
    wide = part.pivot("predictor", index=["pair", *base], values=column, aggregate_function="first")
    suffix = "_s" if column.endswith("_s") else "_share"
    return table_view(wide.select("pair", *base, *(pl.col(name).alias(f"{name}{suffix}") for name in names)))


def _no_share(gains: pl.DataFrame) -> str:
    reasons = gains["reason"].drop_nulls().unique(maintain_order=True).to_list()
    return f"No share of the oracle's gain: {'; '.join(reasons)}." if reasons else "Nothing was compared like for like."


def quality_section(trace: Trace) -> Section:
    """Section on data quality: the load report, flags and broken rules."""
    report = trace.meta.load_report
    rows = [
        ("rows read", report.rows_in),
        ("rows used", report.rows_used),
        ("rows set aside", report.rows_set_aside),
        ("rows merged into another row's job", report.rows_merged),
        ("jobs made beyond one a row", report.rows_expanded),
        ("jobs", trace.jobs.height),
    ]
    broken = schema.count_violations(trace.jobs)
    rules = [(schema.JOB_RULES[name].meaning, count) for name, count in broken.items() if count]
    files = [(str(file.get("name", "")), int(file.get("rows", 0) or 0)) for file in report.files]
    blocks = [Block("What became of the rows", table=_counts("", rows))]
    for title, counted, none in (
        ("Rows set aside, by reason", list(report.rejected_by_reason.items()), "No row was set aside."),
        ("Jobs flagged by the loader", list(report.flagged.items()), "The loader flagged no job."),
        ("Unknown statuses", list(report.unknown_statuses.items()), ""),
        ("Rules that jobs break", rules, "No job breaks a rule."),
        ("Files", files, ""),
    ):
        if counted:
            blocks.append(Block(title, table=_counts("", counted)))
        elif none:
            blocks.append(Block(title, missing=none))
    return Section(
        "quality", "Data quality", text="Every row of the source is used or set aside, and counted.", blocks=blocks
    )


def _counts(head: str, rows: list[tuple[str, int]]) -> TableView:
    return TableView([(head, False), ("count", True)], [[name.replace("_", " "), f"{n:,}"] for name, n in rows])
