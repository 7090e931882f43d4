"""Write the report: one self-contained HTML page that opens from disk, light and dark, on paper and on a telephone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from analysis.characterize import characterize
from analysis.errors import UsageError
from analysis.report.content import gains_section, quality_section, scores_section, workload_sections
from analysis.report.findings import find, gain_findings, score_findings
from analysis.report.replayed import characterize_replays

if TYPE_CHECKING:
    from analysis.replay import ReplayResult
    from analysis.replay.gains import GainsResult
    from analysis.trace import Trace

__all__ = ["render_report", "write_report"]

CLOCKS: Final = {
    "absolute": "",
    "clock_only": "Hours and weekdays mean something, dates do not: the source shifted them.",
    "relative": "Times count from the start of the log: hours, weekdays and dates mean nothing.",
}


def render_report(
    trace: Trace,
    *,
    scores: pl.DataFrame | None = None,
    predictions: pl.DataFrame | None = None,
    gains: GainsResult | None = None,
    replays: Mapping[str, ReplayResult] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> str:
    """Make the text of the report; parameters as in `write_report`."""
    tables = characterize(trace)
    table = gains.table if gains is not None else None
    sections = [
        *workload_sections(trace, tables, characterize_replays(trace.jobs, replays)),
        scores_section(scores, predictions),
        gains_section(table),
        quality_section(trace),
    ]
    if not trace.jobs.height:
        sections = [section for section in sections if section.anchor == "quality"]
    return _template().render(
        title=title or f"GPU cluster log: {trace.meta.name or 'unnamed'}",
        meta=trace.meta,
        facts=_facts(trace),
        findings=[*find(tables), *score_findings(scores), *gain_findings(table)],
        sections=sections,
        notes=_notes(trace, notes),
        version=_version(),
        markup=Markup,
    )


def write_report(  # noqa: PLR0913 - the parts of a report are all optional and named
    trace: Trace,
    path: Path | str,
    *,
    scores: pl.DataFrame | None = None,
    predictions: pl.DataFrame | None = None,
    gains: GainsResult | None = None,
    replays: Mapping[str, ReplayResult] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> Path:
    """Write everything that is known about a log into one HTML page.

    Parameters
    ----------
    trace : Trace
        The log.
    path : path
        File to write; made under a temporary name beside it and renamed, so it is never half there.
    scores : DataFrame, optional
        Scores of a backtest, one row per predictor: model, log_mae and others. Null: the page says that there are none.
    predictions : DataFrame, optional
        Predictions of the backtest, one row per job: duration_s and predicted_duration_s__<name>. [s]
    gains : GainsResult, optional
        The paired comparison of policies.
    replays : mapping of str to ReplayResult, optional
        Replays of the log by policy, for queueing delay and GPUs in use where the log does not say when jobs started.
    title : str, optional
        Title of the page; by default the name of the trace.
    notes : iterable of str
        Assumptions to be listed, beside those of the load report.

    Returns
    -------
    Path
        The file: no address in it leaves the page, and the same input gives the same bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    path = Path(path)
    text = render_report(
        trace, scores=scores, predictions=predictions, gains=gains, replays=replays, title=title, notes=notes
    )
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        msg = (
            f"{path}: the report cannot be written ({error.strerror}); choose a file in a folder that you may write to."
        )
        raise UsageError(msg) from error
    staging = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        staging.chmod(0o644)
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    return path


def _template() -> Template:
    source = files("analysis.report").joinpath("report.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source)


def _version() -> str:
    try:
        return version("gpu-hindcast")
    except PackageNotFoundError:
        return "not installed"


def _facts(trace: Trace) -> list[tuple[str, str]]:
    meta = trace.meta
    zone = meta.time_zone + {"assumed": " (assumed)", "given": " (as given)", "declared": "", "none": ""}.get(
        meta.time_zone_certainty, ""
    )
    covered = " to ".join(text[:16].replace("T", " ") for text in meta.window if text)
    facts = [
        ("Source", meta.source),
        ("Licence", meta.licence),
        ("Please cite", meta.citation),
        ("Covers", covered if meta.clock == "absolute" else ""),
        ("Time zone of hours and weekdays", zone if meta.clock != "relative" else ""),
        ("Clock", CLOCKS[meta.clock]),
        ("Coverage", meta.coverage or ""),
    ]
    return [(name, text) for name, text in facts if text]


def _notes(trace: Trace, notes: Iterable[str]) -> list[str]:
    assumed = "A job still running when the log ends counts with the time that it had run, a lower bound."
    known = [*trace.meta.load_report.notes, *notes, assumed]
    if trace.meta.coverage is None:
        known.append("The source does not say which part of the cluster's jobs the log holds.")
    return list(dict.fromkeys(known))
