"""Several logs side by side, and beside what is published about others: names, sections and findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from analysis.plots.style import duration_text
from analysis.report.blocks import Section, figure_block, table_block
from analysis.report.numbers import count_text, number_text, percent_text
from analysis.report.published import compare_with_published, published_gains
from analysis.report.sentences import table_of
from analysis.report.workload import Logs
from analysis.trace import Trace

__all__ = ["compared_findings", "logs_section", "name_logs", "published_finding", "published_section"]

COMPARISON: Final = "published_comparison"
DEFINITION: Final = (
    "Figures of GPU jobs. The logs given stand first; the others are what their authors publish, or what was counted "
    "in the files that they published (certainty: computed), or was read in someone else's account (secondary). Failed "
    "holds timeouts and failed nodes. Device utilization is the mean of the samples in AcmeTrace's utilization files. "
    "Authors leave out different jobs, so differences of a few percent say nothing."
)
#: What a page has room for; the CSV has more.
SHOWN: Final = (
    *("trace", "num_gpus", "num_gpu_jobs", "median_duration_s", "mean_duration_s", "max_duration_s"),
    *("median_queueing_delay_s", "mean_queueing_delay_s", "single_gpu_share", "mean_gpus", "max_gpus"),
    *("completed_share", "cancelled_share", "failed_share", "failed_gpu_time_share", "gpu_utilization_mean"),
)
#: Whom a sentence compares with: Acme's two clusters stand for it.
WITH: Final = ("Philly", "Helios", "Seren", "Kalos")
#: Below this ratio either way, two logs are called alike.
ALIKE: Final = 1.15


def name_logs(traces: Sequence[Trace], *, names: Sequence[str] | None = None) -> dict[str, Trace]:
    """Logs by name, in their order; a name that comes twice gets a number.

    Parameters
    ----------
    traces : sequence of Trace
        The logs.
    names : sequence of str, optional
        What they are called; by default as their metadata call them.
    """
    named: dict[str, Trace] = {}
    for place, trace in enumerate(traces):
        wanted = (names[place] if names else trace.meta.name) or "log"
        name, number = wanted, 2
        while name in named:
            name, number = f"{wanted} ({number})", number + 1
        named[name] = trace
    return named


def logs_section(logs: Logs) -> Section:
    """Section on what the logs are: a row per log."""
    rows = [
        {
            "trace": log,
            "source": trace.meta.source,
            "licence": trace.meta.licence,
            "covers": " to ".join(text[:10] for text in trace.meta.window if text)
            if trace.meta.clock == "absolute"
            else "",
            "time_zone": trace.meta.time_zone if trace.meta.clock != "relative" else "",
            "coverage": trace.meta.coverage or "",
            "citation": trace.meta.citation,
        }
        for log, trace in logs.traces.items()
    ]
    return Section(
        "logs", "The logs", blocks=[table_block("logs", pl.DataFrame(rows), title="The logs", is_folded=False)]
    )


def _by_log(logs: Logs) -> dict[str, Mapping[str, pl.DataFrame]]:
    return {log: {name: tables[log] for name, tables in logs.tables.items()} for log in logs.traces}


def published_section(logs: Logs) -> list[Section]:
    """Section that sets the logs beside published ones; none where no log has GPU jobs."""
    table = compare_with_published(_by_log(logs))
    own = table.filter(~pl.col("is_published"))
    if not (own["num_gpu_jobs"] > 0).any():
        return []
    title = "How this differs from Philly, Helios, Acme and others"
    block = table_block(COMPARISON, table, title=title, columns=SHOWN, is_folded=False)
    block.definition = DEFINITION
    block.sources = f"Sources: {_sources(table)}."
    if block.table:
        block.table = replace(block.table, num_own=own.height)
    gains = table_block("published_gains", published_gains(), title="What others gained", is_folded=True)
    gains.text = "How many times shorter prediction-aware scheduling made the mean completion time, as its authors say."
    text = "The same figures of other clusters, as published; a dash stands for what is not."
    return [Section("published", "Beside other clusters", text, [block, figure_block(COMPARISON, table), gains])]


def _sources(table: pl.DataFrame) -> str:
    published = table.filter(pl.col("is_published"))
    by_source = published.group_by("citation", "certainty", maintain_order=True).agg(pl.col("trace").str.join(", "))
    return "; ".join(f"{logs}: {text} ({certainty})" for text, certainty, logs in by_source.iter_rows())


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def published_finding(tables: Mapping[str, pl.DataFrame]) -> str | None:
    """Sentence that sets a log's median job beside those of Philly, Helios and Acme.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Result tables of the log.
    """
    table = compare_with_published({"": tables})
    own = table["median_duration_s"][0]
    if not own:
        return None
    others = table.filter(pl.col("is_published") & pl.col("trace").is_in(WITH)).select("trace", "median_duration_s")
    parts = [f"{_times(own / other)} {log} ({duration_text(other)})" for log, other in others.iter_rows()]
    return f"The median GPU job runs {duration_text(own)}: {_listed(parts)}."


def _times(ratio: float) -> str:
    if 1 / ALIKE < ratio < ALIKE:
        return "as long as in"
    return f"{number_text(ratio)} times as long as in" if ratio > 1 else f"{percent_text(ratio)} as long as in"


@dataclass(frozen=True)
class _Spread:
    """A sentence on the log with the most and the log with the least of something."""

    column: str
    most: str
    least: str
    text: Callable[[float], str]
    has_ratio: bool = True

    def sentence(self, table: pl.DataFrame) -> str | None:
        known = table.select("trace", self.column).drop_nulls().sort(self.column, "trace")
        if known.height < 2:
            return None
        (low_log, low), (high_log, high) = known.row(0), known.row(-1)
        ratio = f", {number_text(high / low)} times as much" if self.has_ratio and low > 0 and high > low else ""
        return f"{self.most} {high_log} ({self.text(high)}{ratio}), {self.least} {low_log} ({self.text(low)})."


def _gpus(value: float) -> str:
    return f"{number_text(value)} GPU{'' if value == 1 else 's'}"


def _bursts(value: float) -> str:
    return f"{number_text(value)} times as variable an hour as independent ones"


SPREADS: Final = (
    _Spread("median_duration_s", "The median GPU job runs longest in", "shortest in", duration_text),
    _Spread("mean_duration_s", "GPU jobs run longest on average in", "shortest in", duration_text),
    _Spread("mean_gpus", "GPU jobs ask for the most GPUs on average in", "for the fewest in", _gpus),
    _Spread("single_gpu_share", "Jobs of one GPU or less are most of", "fewest of", percent_text, has_ratio=False),
    _Spread("completed_share", "GPU jobs complete most often in", "least often in", percent_text, has_ratio=False),
    _Spread(
        "failed_gpu_time_share",
        "Failed jobs take the largest part of the GPU time in",
        "the smallest in",
        percent_text,
        has_ratio=False,
    ),
    _Spread("mean_queueing_delay_s", "GPU jobs wait longest on average in", "least in", duration_text),
    _Spread(
        "gpu_allocation", "Jobs hold the largest part of the GPUs in", "the smallest in", percent_text, has_ratio=False
    ),
    _Spread("idc_1h", "Jobs arrive in the strongest bursts in", "in the weakest in", _bursts, has_ratio=False),
    _Spread(
        "within_2x_share",
        "The past of its owner predicts a job within a factor of 2 most often in",
        "least often in",
        percent_text,
        has_ratio=False,
    ),
    _Spread(
        "top_3_users_share",
        "The three largest users use most of the GPU time in",
        "least in",
        percent_text,
        has_ratio=False,
    ),
)


def compared_findings(logs: Logs) -> list[str]:
    """Sentences that compare the logs with each other and with a published one, each with its numbers."""
    tables = _by_log(logs)
    table = compare_with_published(tables)
    own = table.filter(~pl.col("is_published"))
    more = {
        "gpu_allocation": lambda of_log: _first(of_log, "running_gpus_summary", "gpu_allocation"),
        "top_3_users_share": _largest_users,
        "idc_1h": lambda of_log: _first(of_log, "burstiness", "idc_1h"),
        "within_2x_share": _looking_back,
    }
    columns = {name: [of(of_log) for of_log in tables.values()] for name, of in more.items()}
    own = own.hstack(pl.DataFrame(columns, schema=dict.fromkeys(more, pl.Float64())))
    found = [_sizes(own), *(spread.sentence(own) for spread in SPREADS), _beside_helios(table)]
    return [text for text in found if text]


def _sizes(own: pl.DataFrame) -> str:
    parts = [
        f"{log} holds {count_text(jobs)} jobs ({count_text(gpu_jobs)} with GPUs)"
        for log, jobs, gpu_jobs in own.select("trace", "num_jobs", "num_gpu_jobs").iter_rows()
    ]
    return f"{_listed(parts)}."


def _first(tables: Mapping[str, pl.DataFrame], name: str, column: str) -> float | None:
    table = table_of(tables, name)
    return table[column][0] if table.height else None


def _looking_back(tables: Mapping[str, pl.DataFrame]) -> float | None:
    """Best share within a factor of two, of GPU jobs (of the first kind where there are none)."""
    table = table_of(tables, "nearest_history")
    best = table.filter(pl.col("kind") == table["kind"][0])["within_2x_share"].max() if table.height else None
    return float(best) if isinstance(best, int | float) else None


def _largest_users(tables: Mapping[str, pl.DataFrame]) -> float | None:
    users = tables["top_users"].filter(pl.col("user").is_not_null())
    return (
        float(users["gpu_time_share"].head(3).sum()) if users.height > 3 and users["gpu_time_share"].count() else None
    )


def _beside_helios(table: pl.DataFrame) -> str | None:
    helios = table.filter(pl.col("is_published") & (pl.col("trace") == "Helios"))["median_duration_s"].item()
    own = table.filter(~pl.col("is_published")).select("trace", "median_duration_s").drop_nulls()
    parts = [f"{log}'s median GPU job runs {_times(value / helios)} Helios" for log, value in own.iter_rows()]
    return f"{_listed(parts)} ({duration_text(helios)}, as published)." if parts else None
