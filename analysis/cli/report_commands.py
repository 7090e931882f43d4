"""Commands that people read: characterize, report, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analysis.cli.app import JsonOption, app, progress, say, show_table, split_names, write_json
from analysis.cli.replay_commands import ClusterOption, NoVcOption, choose_cluster
from analysis.cli.road import num_steps, walk

__all__ = ["characterize", "demo", "report"]

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")]
MARKER = "characterization.json"
DEMO_JOBS = 20_000
DEMO_MARKER = "report.html"


@app.command()
def characterize(
    trace_folder: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for tables and figures.")],
    *,
    json_to: JsonOption = None,
) -> None:
    """Say what the workload looks like: result tables (Parquet, CSV) and figures (SVG, PNG).

    Example: hindcast characterize philly -o philly-tables
    """
    from analysis.characterize import characterize as run
    from analysis.plots import write_figures
    from analysis.trace import Trace, write_folder

    trace = Trace.read(trace_folder)
    tables = run(trace)
    summary = tables["summary"].to_dicts()

    def fill(folder: Path) -> None:
        (folder / "tables").mkdir()
        for name, table in tables.items():
            table.write_parquet(folder / "tables" / f"{name}.parquet")
            table.write_csv(folder / "tables" / f"{name}.csv")
        (folder / "figures").mkdir()
        write_figures(tables, folder / "figures")
        write_json(summary, folder / MARKER)

    with progress("characterizing"):
        write_folder(output, fill, marker=MARKER)
    show_table(summary, json_to=json_to)
    write_json({name: table.to_dicts() for name, table in tables.items()}, json_to)
    say(f"{len(tables)} tables and their figures written to {output}", json_to=json_to)


@app.command()
def report(
    trace_folder: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="HTML file to write.")],
    *,
    cluster: ClusterOption = None,
    models: Annotated[str | None, typer.Option(help="Predictors, commas between; by default all.")] = None,
    no_vc: NoVcOption = False,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of fits and intervals.")] = 0,
) -> None:
    """Write everything about a Trace into one page that opens from disk.

    Example: hindcast report philly --cluster 52x8 --no-vc -o report.html
    """
    from analysis.report import write_report
    from analysis.trace import Trace
    from predictors import DEFAULT_MODELS

    trace = Trace.read(trace_folder)
    names = split_names(models, option="--models") if models else list(DEFAULT_MODELS)
    site = choose_cluster(trace, cluster)
    with progress("walking the road", total=num_steps(names)) as step:
        road = walk(trace, cluster=site, models=names, use_vcs=not no_vc, seed=seed, step=step)
        write_report(
            trace,
            output,
            scores=road.scores,
            predictions=road.predictions,
            gains=road.gains,
            replays=road.replays,
            title=title,
            notes=road.notes,
        )
    say(f"Report written to {output}")
