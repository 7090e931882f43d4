"""The command that replays a Trace under schedulers."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from analysis.cli.app import JsonOption, app, say, show_table, split_names, write_json
from analysis.cli.failure_options import CheckpointOption, MtbfOption, MttrOption, failing
from analysis.cli.policy_options import with_options
from analysis.cli.replay_output import (
    MARKER,
    agreement,
    compared_with_log,
    in_hours,
    rejected_note,
    timeout_notes,
    write_replays,
)
from analysis.cli.replay_predictors import ORACLE, PredictorOption, RefreshOption, oracle_note, with_predictions
from analysis.cli.replay_runs import OneRun, planned
from analysis.cli.replay_tables import write_tables
from analysis.cli.replay_watch import event_folder, move_logs, run_all
from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.replay import Cluster, ReplayResult
    from analysis.trace import Trace

__all__ = ["ClusterOption", "NoVcOption", "choose_cluster", "replay"]

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="C",
        help="A cluster file (TOML), NODESxGPUS[:TYPE] such as 52x8, or 'quotas': the trace's own, as its VCs' quotas "
        "change over time. By default the trace's own, with the largest quotas.",
    ),
]
NoVcOption = Annotated[bool, typer.Option("--no-vc", help="Ignore virtual clusters: one queue, all nodes.")]
PolicyOption = Annotated[
    str, typer.Option(help="Policies, commas between ('hindcast policies'); 'recorded' is the log's own schedule.")
]
OptionOption = Annotated[
    list[str] | None, typer.Option(metavar="POLICY.NAME=VALUE", help="An option of a policy; may be repeated.")
]


@app.command()
def replay(
    trace_folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for schedules and metrics.")],
    *,
    policy: PolicyOption = "fifo,sjf",
    option: OptionOption = None,
    cluster: ClusterOption = None,
    placement: Annotated[str, typer.Option(help="Placements, commas between.")] = "consolidate",
    predictor: PredictorOption = ORACLE,
    refresh: RefreshOption = None,
    no_vc: NoVcOption = False,
    enforce_limits: Annotated[
        bool, typer.Option("--enforce-limits", help="End jobs at their time limit; by default they run on.")
    ] = False,
    mtbf: MtbfOption = None,
    mttr: MttrOption = None,
    checkpoint_interval: CheckpointOption = None,
    seed: Annotated[int, typer.Option(help="Of placement 'random', and of failures.")] = 0,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw figures into DIR/figures.")] = True,
    events: Annotated[
        bool, typer.Option("--events", help="Write event logs too: DIR/events/<schedule>.parquet.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Replay a Trace under one or more policies and write schedules and metrics.

    Ctrl-C ends the replay that is going on; what there is by then is written, with the rest of its jobs unfinished.

    Example: hindcast replay philly --policy fifo,las --option las.thresholds_gpu_s=3600,14400 --cluster 52x8 -o replays
    """
    from analysis.replay import PLACEMENTS, POLICIES
    from analysis.replay.helios import HELIOS
    from analysis.replay.recorded import RECORDED
    from analysis.trace import Trace

    names = _known(policy, [*POLICIES, RECORDED, *HELIOS], kind="scheduling policy", option="--policy")
    placements = _known(placement, PLACEMENTS, kind="placement", option="--placement")
    policies = with_options(option or [], policies=names, registry=POLICIES)
    trace = Trace.read(trace_folder)
    site = choose_cluster(trace, cluster)
    jobs, columns, notes = with_predictions(trace, predictor, refresh_h=refresh)
    how: dict[str, Any] = {"cluster": site, "use_vcs": not no_vc}
    runs = planned(names, policies, columns=columns, placements=placements)
    limits: dict[str, Any] = {"seed": seed, "enforce_limits": enforce_limits}
    limits |= {"checkpoint_interval_s": checkpoint_interval}
    limits["cluster"], drawn = failing(site, jobs, mtbf_h=mtbf, mttr_h=mttr, seed=seed, policies=names)
    notes += drawn
    results: dict[str, ReplayResult] = {}
    with event_folder(output, wanted=events) as logs:
        stopped = run_all(runs, results, partial(_one_run, jobs, trace, how, limits), logs)
        if stopped and not results:
            raise KeyboardInterrupt
        notes += oracle_note(names, columns)
        notes += [note for result in results.values() for note in (*result.notes, *rejected_note(result))]
        if enforce_limits:
            timed = [one.label for one in runs if one.policy is not None and one.label in results]
            notes += timeout_notes({label: results[label] for label in timed})
        options = {one.label: one.options for one in runs}
        rows = [{"schedule": label, "options": options[label], **result.metrics()} for label, result in results.items()]
        _tell(output, jobs, results, rows=rows, notes=notes, figures=figures, logs=logs, json_to=json_to)
    if stopped:
        say(stopped, json_to=json_to)
        raise typer.Exit(130)


def _one_run(
    jobs: pl.DataFrame, trace: Trace, how: dict[str, Any], limits: dict[str, Any], one: OneRun, watch: dict[str, Any]
) -> ReplayResult:
    return one.run(jobs, attempts=trace.attempts, how=how, limits=limits | watch)


def _tell(
    output: Path,
    jobs: pl.DataFrame,
    results: dict[str, ReplayResult],
    *,
    rows: list[dict[str, Any]],
    notes: list[str],
    figures: bool,
    logs: Path | None,
    json_to: Path | None,
) -> None:
    """Write what the replays gave, and show it."""
    from analysis.trace import write_folder

    table = compared_with_log(jobs, results)

    def write(folder: Path) -> None:
        write_replays(folder, rows, results, table, figures=figures)
        write_tables(folder, results, jobs, figures=figures)
        move_logs(logs, folder)

    write_folder(output, write, marker=MARKER)
    show_table([in_hours(row) for row in rows], json_to=json_to)
    show_table(agreement(table), json_to=json_to)
    for note in dict.fromkeys(notes):
        say(f"note: {note}", json_to=json_to)
    write_json(rows, json_to)
    what = "Schedules, metrics and figures" if figures else "Schedules and metrics"
    say(f"{what} written to {output}", json_to=json_to)


def choose_cluster(trace: Trace, text: str | None) -> Cluster:
    """Read a cluster from what the user wrote: a TOML file, NODESxGPUS[:TYPE], quotas, or nothing (the trace's own).

    Raises
    ------
    UsageError
        If the text is neither a file nor of these forms, or the trace has no quotas.
    """
    from analysis.replay import Cluster

    if text is None:
        return Cluster.from_trace(trace)
    if text == "quotas":
        if trace.nodes.height or not trace.capacity.height:
            msg = "--cluster quotas: the trace has no quotas to follow, or has nodes; leave the option out."
            raise UsageError(msg)
        return Cluster.from_trace(trace, quotas="over_time")
    if short := re.fullmatch(r"(\d+)x(\d+)(?::(\S+))?", text):
        return Cluster.uniform(num_nodes=int(short[1]), num_gpus=int(short[2]), gpu_type=short[3])
    if not Path(text).suffix and not Path(text).exists():
        msg = f"--cluster {text!r}: neither a file, NODESxGPUS[:TYPE], nor quotas; give e.g. cluster.toml or 52x8:V100."
        raise UsageError(msg)
    return Cluster.from_toml(Path(text))


def _known(text: str, registry: Collection[str], *, kind: str, option: str) -> list[str]:
    """Names that the registry has; all unknown ones in one error."""
    names = split_names(text, option=option)
    if unknown := [name for name in names if name not in registry]:
        msg = (
            f"{option}: no {kind} is named {', '.join(map(repr, unknown))} (known: {', '.join(sorted(registry))}). "
            f"Choose from these, or register your own before the replay."
        )
        raise UsageError(msg)
    return names
