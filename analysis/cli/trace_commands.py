"""Commands that make a Trace and look at one: load, check, synth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.app import JsonOption, app, progress, say, show_table, write_json
from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.trace import Trace

__all__ = ["check", "load", "synth"]

OutputOption = Annotated[Path, typer.Option("-o", "--output", metavar="TRACE", help="Trace folder to write.")]


@app.command()
def load(
    source: Annotated[str, typer.Argument(help="A loader's name, or 'auto' to recognise the files by content.")],
    paths: Annotated[list[Path], typer.Argument(help="Raw files, or a folder that holds them.")],
    output: OutputOption,
    *,
    timezone: Annotated[str | None, typer.Option(help="Zone of times that carry none, e.g. Europe/Oslo.")] = None,
    name: Annotated[str | None, typer.Option(help="Short name of the trace.")] = None,
    column_map: Annotated[
        str | None, typer.Option("--map", help="For 'table': job_id=id,submit_time=submit,… or a TOML file.")
    ] = None,
    time_format: Annotated[str | None, typer.Option(help="For 'table': strftime format of its times.")] = None,
    clock: Annotated[str | None, typer.Option(help="For 'table': absolute, clock_only or relative.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Any other option of the loader.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Load raw files into a Trace folder and say what became of every row.

    Example: hindcast load auto philly_jobs.csv.gz -o philly
    """
    from analysis import loaders

    options = _loader_options(option or [])
    given = {"columns": column_map, "time_format": time_format, "clock": clock}
    options |= {key: value for key, value in given.items() if value is not None}
    with progress(f"loading {source}"):
        trace = loaders.load(source, paths, timezone=timezone, name=name, **options)
        trace.write(output)
    _say_load_report(trace, json_to)
    say(f"Trace written to {output}", json_to=json_to)
    write_json(_as_json(trace), json_to)


@app.command()
def check(
    trace_folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")],
    *,
    rows: Annotated[int, typer.Option(min=0, help="How many of the rows set aside to show.")] = 5,
    json_to: JsonOption = None,
) -> None:
    """Check a Trace: its rules, its flags, the rows set aside.

    Example: hindcast check philly
    """
    from analysis import schema
    from analysis.trace import Trace

    trace = Trace.read(trace_folder)
    schema.validate_jobs(trace.jobs)
    counts = schema.count_violations(trace.jobs)
    _say_load_report(trace, json_to)
    laws = [
        {"rule": name, "rows": counts[name], "kind": rule.severity, "meaning": rule.meaning}
        for name, rule in schema.JOB_RULES.items()
    ]
    show_table(laws, title="\nRules", json_to=json_to)
    if trace.rejects.height and rows:
        show_table(trace.rejects.head(rows).to_dicts(), title="\nRows set aside (first)", json_to=json_to)
    write_json({"rules": counts, **_as_json(trace)}, json_to)


@app.command()
def synth(
    output: OutputOption,
    *,
    like: Annotated[str, typer.Option(help="Published trace whose figures to match, e.g. venus, philly, kalos.")],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same trace.")] = 0,
    cpu_jobs: Annotated[bool, typer.Option("--cpu-jobs", help="CPU jobs too, in the published share.")] = False,
    json_to: JsonOption = None,
) -> None:
    """Make a synthetic trace calibrated to a published one.

    Example: hindcast synth --like venus --jobs 100000 --seed 0 -o venus
    """
    from analysis.loaders.synthetic import synthesize

    with progress(f"drawing {jobs:,} jobs like {like}"):
        trace = synthesize(like=like, num_jobs=jobs, seed=seed, cpu_jobs=cpu_jobs)
        trace.write(output)
    _say_load_report(trace, json_to)
    say(f"Trace written to {output}", json_to=json_to)
    write_json(_as_json(trace), json_to)


def _loader_options(words: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE words; true, false and whole numbers become what they look like."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not (key and equals):
            msg = f"--option {word!r}: expected KEY=VALUE, e.g. --option fold_rare=true."
            raise UsageError(msg)
        plain = {"true": True, "false": False}
        options[key] = plain[text] if text in plain else int(text) if text.lstrip("-").isdigit() else text
    return options


def _meta(trace: Trace) -> dict[str, Any]:
    return {key: value for key, value in asdict(trace.meta).items() if key != "load_report"}


def _say_load_report(trace: Trace, json_to: Path | None) -> None:
    """Print what is known about a trace and what became of its raw rows."""
    meta, report = trace.meta, trace.meta.load_report
    say(f"{meta.name}: {trace.jobs.height:,} jobs; licence: {meta.licence}", json_to=json_to)
    say(f"times: {meta.clock} clock, zone {meta.time_zone} ({meta.time_zone_certainty})", json_to=json_to)
    say(
        f"raw rows: {report.rows_in:,} in = {report.rows_used:,} used + {report.rows_set_aside:,} set aside"
        f" ({report.rows_merged:,} merged into another's job, {report.rows_expanded:,} jobs expanded from arrays)",
        json_to=json_to,
    )
    for title, counts in (
        ("set aside", report.rejected_by_reason),
        ("flagged", report.flagged),
        ("unknown statuses", report.unknown_statuses),
    ):
        if counts:
            text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            say(f"{title}: {text}", json_to=json_to)
    for note in report.notes:
        say(f"note: {note}", json_to=json_to)


def _as_json(trace: Trace) -> dict[str, Any]:
    return {"meta": _meta(trace), "load_report": asdict(trace.meta.load_report)}
