"""Commands that people read: characterize, report, demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.app import JsonOption, app, progress, refuse_inside, say, show_table, split_names, write_json
from analysis.cli.characterize_options import (
    AddressOption,
    ByOption,
    EngineOption,
    WhereOption,
    counting,
    job_filter,
)
from analysis.cli.replay_commands import ClusterOption, NoVcOption, choose_cluster
from analysis.cli.road import cluster_place, num_steps, walk
from analysis.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from analysis.replay import Cluster
    from analysis.trace import Trace

__all__ = ["characterize", "demo", "report"]

TracesArgument = Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Trace folder, one or several.")]
MARKER = "characterization.json"
#: Columns of the summary that are shown for each group, beside the group.
GROUP_COLUMNS = ("num_jobs", "num_gpu_jobs", "gpu_hours", "median_duration_s", "median_queueing_delay_s", "num_users")
MOST_GROUPS = 25
DEMO_JOBS = 20_000
DEMO_MARKER = "report.html"


@app.command()
def characterize(
    trace_folders: TracesArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for all that comes out.")],
    *,
    by: ByOption = None,
    where: WhereOption = None,
    engine: EngineOption = "polars",
    address: AddressOption = None,
    json_to: JsonOption = None,
) -> None:
    """Say what the workload looks like: result tables (Parquet, CSV) and figures (SVG, PNG).

    Several Traces come side by side: tables with a column 'trace', figures with all of them. The table
    'published_comparison' sets them beside what is published about other clusters. With --by there are tables only.

    Example: hindcast characterize philly -o philly-tables

    Example: hindcast characterize philly --by vc --where "num_gpus > 0" -o philly-by-vc
    """
    from analysis.characterize import characterize as run
    from analysis.characterize.cubes import as_groups

    logs, condition = _read_logs(trace_folders), job_filter(where)
    groups = as_groups(split_names(by, option="--by") if by else ())
    with counting(engine=engine, address=address), progress("characterizing", total=len(logs)) as step:
        made = {}
        for log, trace in logs.items():
            made[log] = run(trace, by=groups, where=condition, engine=engine)
            step(log)
    tables = _write_grouped(made, output) if groups else _write_characterized(made, output)
    _show_summary(tables["summary"], groups, num_logs=len(logs), json_to=json_to)
    write_json({name: table.to_dicts() for name, table in tables.items()}, json_to)
    say(f"{len(tables)} tables{'' if groups else ' and their figures'} written to {output}", json_to=json_to)


def _show_summary(summary: pl.DataFrame, groups: tuple[str, ...], *, num_logs: int, json_to: Path | None) -> None:
    rows = summary.to_dicts()
    if groups:
        columns = ["trace", *groups, *GROUP_COLUMNS]
        show_table([{name: row[name] for name in columns} for row in rows[:MOST_GROUPS]], json_to=json_to)
    elif num_logs > 1:
        # A row of many columns is read from top to bottom.
        names = summary.columns[1:]
        show_table([{"what": name, **{row["trace"]: row[name] for row in rows}} for name in names], json_to=json_to)
    else:
        show_table(_what_value(rows), json_to=json_to)


def _what_value(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"what": name, "value": value} for row in summary for name, value in row.items()]


def _read_logs(folders: list[Path]) -> dict[str, Trace]:
    """Traces by name: as their metadata call them, or as their folders where those names are not all different."""
    from analysis.report import name_logs
    from analysis.trace import Trace

    traces = [Trace.read(folder) for folder in folders]
    names = [trace.meta.name for trace in traces]
    differ = len(set(names)) == len(names)
    return name_logs(traces, names=names if differ else [folder.resolve().name for folder in folders])


def _write_characterized(made: dict[str, dict[str, pl.DataFrame]], output: Path) -> dict[str, pl.DataFrame]:
    """Write the tables and figures of one log or several, and give the tables."""
    from analysis.plots import write_figures
    from analysis.report import compare_with_published, stacked
    from analysis.trace import write_folder

    by_table = {name: {log: tables[name] for log, tables in made.items()} for name in next(iter(made.values()))}
    one = len(made) == 1
    drawn: dict[str, Any] = {name: next(iter(logs.values())) if one else logs for name, logs in by_table.items()}
    drawn["published_comparison"] = compare_with_published(made)
    tables = {name: stacked(table) for name, table in drawn.items()}

    def fill(folder: Path) -> None:
        _write_tables(tables, folder)
        (folder / "figures").mkdir()
        write_figures(drawn, folder / "figures")

    write_folder(output, fill, marker=MARKER)
    return tables


def _write_grouped(made: dict[str, dict[str, pl.DataFrame]], output: Path) -> dict[str, pl.DataFrame]:
    """Write the tables of groups, of one log or several, and give them; figures would be one per group."""
    from analysis.report import stacked
    from analysis.trace import write_folder

    names = list(next(iter(made.values())))
    one = next(iter(made.values())) if len(made) == 1 else None
    tables = one or {name: stacked({log: each[name] for log, each in made.items()}) for name in names}
    write_folder(output, lambda folder: _write_tables(tables, folder), marker=MARKER)
    return tables


def _write_tables(tables: dict[str, pl.DataFrame], folder: Path) -> None:
    from analysis.report.download import csv_text

    (folder / "tables").mkdir()
    for name, table in tables.items():
        table.write_parquet(folder / "tables" / f"{name}.parquet")
        (folder / "tables" / f"{name}.csv").write_text(csv_text(table), encoding="utf-8")
    write_json(tables["summary"].to_dicts(), folder / MARKER)


@app.command()
def report(
    trace_folders: TracesArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="HTML file to write.")],
    *,
    workload_only: Annotated[
        bool, typer.Option("--workload-only", help="Leave out predictors and replays: seconds instead of minutes.")
    ] = False,
    where: WhereOption = None,
    cluster: ClusterOption = None,
    models: Annotated[str | None, typer.Option(help="Predictors, commas between; by default all.")] = None,
    no_vc: NoVcOption = False,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of fits and intervals.")] = 0,
) -> None:
    """Write everything about a Trace into one page that opens from disk; several Traces are set side by side.

    Predictors are tried and schedulers compared on one Trace; a page about several is about their workloads.

    Example: hindcast report philly --cluster 52x8 --no-vc -o report.html

    Example: hindcast report graham --where "num_gpus > 0" --workload-only -o graham.html
    """
    from analysis.report import write_comparison, write_report

    refuse_inside(output, given=trace_folders)
    logs, notes = _read_logs(trace_folders), []
    if (condition := job_filter(where)) is not None:
        logs = {log: trace.replace_jobs(trace.jobs.filter(condition)) for log, trace in logs.items()}
        notes = [
            f"Everything is about the jobs with {where}, "
            "but for what the load report counts (rows, flags, statuses, files)."
        ]
    if len(logs) > 1 or workload_only:
        _refuse_road_options({"--cluster": cluster, "--models": models, "--no-vc": no_vc or None})
        with progress("writing the report"):
            if len(logs) > 1:
                write_comparison(list(logs.values()), output, names=list(logs), title=title, notes=notes)
            else:
                left_out = "Predictors and replays were left out (--workload-only)."
                write_report(next(iter(logs.values())), output, title=title, notes=[*notes, left_out])
        say(f"Report written to {output}")
        return
    trace = next(iter(logs.values()))
    _report_road(trace, output, cluster=cluster, no_vc=no_vc, models=models, title=title, seed=seed, notes=notes)


def _refuse_road_options(given: dict[str, Any]) -> None:
    used = [name for name, value in given.items() if value is not None]
    if used:
        msg = (
            f"{', '.join(used)}: found with several Traces or --workload-only, where nothing is predicted or replayed; "
            "leave it out, or give one Trace without --workload-only."
        )
        raise UsageError(msg)


def _report_road(
    trace: Trace,
    output: Path,
    *,
    cluster: str | None,
    no_vc: bool,
    models: str | None,
    title: str | None,
    seed: int,
    notes: list[str],
) -> None:
    """Walk the whole road of one Trace and write its report."""
    from analysis.report import write_report
    from predictors import default_models

    names = split_names(models, option="--models") if models else default_models(trace.jobs)
    site, why_not = _site(trace, cluster)
    place = cluster_place(trace, is_given=cluster is not None)
    with progress("walking the road", total=num_steps(names)) as step:
        road = walk(trace, cluster=site, models=names, place=place, use_vcs=not no_vc, seed=seed, step=step)
        write_report(
            trace,
            output,
            scores=road.scores,
            predictions=road.predictions,
            backtest=road.backtest,
            gains=road.gains,
            replays=road.replays,
            title=title,
            notes=[*notes, *why_not, *road.notes],
        )
    for note in why_not:
        say(f"note: {note}")
    say(f"Report written to {output}")


def _site(trace: Trace, cluster: str | None) -> tuple[Cluster | None, list[str]]:
    """Choose the cluster; a log that shows no GPU has none, with the reason, but what it says is still reported."""
    try:
        return choose_cluster(trace, cluster), []
    except UsageError as error:
        if cluster is not None:
            raise
        return None, [f"No replay and no comparison of policies: {error}"]


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for all that comes out.")
    ] = Path("demo"),
    *,
    jobs: Annotated[int, typer.Option("--jobs", min=100, help="Jobs of the synthetic trace.")] = DEMO_JOBS,
    like: Annotated[str, typer.Option(help="Published trace that the synthetic one is calibrated to.")] = "philly",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same report.")] = 0,
) -> None:
    """Walk the whole road on a synthetic trace: load, characterize, backtest, replay, compare, report.

    Example: hindcast demo -o demo
    """
    from analysis.loaders.synthetic import synthesize
    from analysis.replay import Cluster
    from analysis.report import write_report
    from analysis.trace import Trace, write_folder
    from predictors import default_models

    def fill(folder: Path) -> None:
        say(f"1/4  drawing {jobs:,} jobs like {like}")
        trace = Trace.read(synthesize(like=like, num_jobs=jobs, seed=seed).write(folder / "trace"))
        names = default_models(trace.jobs)
        say(f"2/4  replaying under schedulers, scoring {len(names)} predictors (the first run compiles the engine)")
        with progress("walking the road", total=num_steps(names)) as step:
            road = walk(trace, cluster=Cluster.from_trace(trace), models=names, seed=seed, step=step)
        if road.scores is not None:
            road.scores.write_csv(folder / "scores.csv")
            columns = ("model", "log_mae", "within_2x", "spearman")
            show_table(road.scores.select(columns).sort("log_mae").to_dicts())
        say("3/4  policies compared on the trace's own cluster and on a mixed one of the same size")
        if road.gains is not None:
            road.gains.table.write_csv(folder / "gains.csv")
        say("4/4  writing the report")
        write_report(
            trace,
            folder / DEMO_MARKER,
            scores=road.scores,
            predictions=road.predictions,
            backtest=road.backtest,
            gains=road.gains,
            replays=road.replays,
            title=f"hindcast demo: a synthetic trace like {like.capitalize()}",
            notes=road.notes,
        )

    write_folder(output, fill, marker=DEMO_MARKER)
    say(f"Report: {(output / DEMO_MARKER).resolve()}  (open it in a browser; it needs no network)")
