"""The command that replays a Trace under schedulers."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from analysis.cli.app import JsonOption, app, progress, say, show_table, split_names, write_json
from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.replay import Cluster, ReplayResult
    from analysis.trace import Trace

__all__ = ["ClusterOption", "NoVcOption", "choose_cluster", "replay"]

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="C", help="A cluster file (TOML), or NODESxGPUS[:TYPE] such as 52x8; by default the trace's own."
    ),
]
NoVcOption = Annotated[bool, typer.Option("--no-vc", help="Ignore virtual clusters: one queue, all nodes.")]
SHOWN = ("mean_jct_s", "mean_queueing_delay_s", "p95_queueing_delay_s", "max_queue_length", "makespan_s")
MARKER = "metrics.json"
#: The log's own schedule, beside the policies.
RECORDED = "recorded"


@app.command()
def replay(
    trace_folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for schedules and metrics.")],
    *,
    policy: Annotated[
        str, typer.Option(help="Policies, commas between; 'recorded' is the log's own schedule.")
    ] = "fifo,sjf",
    cluster: ClusterOption = None,
    placement: Annotated[str, typer.Option(help="Placements, commas between.")] = "consolidate",
    predictor: Annotated[
        str, typer.Option(metavar="M", help="'oracle' (the true durations) or model folders, commas between.")
    ] = "oracle",
    no_vc: NoVcOption = False,
    json_to: JsonOption = None,
) -> None:
    """Replay a Trace under one or more policies and write schedules and metrics.

    Example: hindcast replay philly --policy fifo,sjf,easy --cluster 52x8 --no-vc -o replays
    """
    from analysis.replay import PLACEMENTS, POLICIES, recorded
    from analysis.replay import replay as run
    from analysis.trace import Trace, write_folder

    policies = _known(policy, [*POLICIES, RECORDED], kind="scheduling policy", option="--policy")
    placements = _known(placement, PLACEMENTS, kind="placement", option="--placement")
    trace = Trace.read(trace_folder)
    site = choose_cluster(trace, cluster)
    jobs, columns, notes = _with_predictions(trace, split_names(predictor, option="--predictor"))
    combos = [(p, name, place) for p in policies if p != RECORDED for name in columns for place in placements]
    results: dict[str, ReplayResult] = {}
    if RECORDED in policies:
        results[RECORDED] = recorded(jobs, cluster=site, attempts=trace.attempts)
    with progress("replaying", total=len(combos)) as step:
        for one_policy, name, place in combos:
            label = one_policy if len(columns) * len(placements) == 1 else f"{one_policy}__{name}__{place}"
            results[label] = run(
                jobs,
                cluster=site,
                policy=one_policy,
                predicted=columns[name],
                placement=place,
                use_vcs=not no_vc,
            )
            step(label)
    rows = [{"schedule": label, **result.metrics()} for label, result in results.items()]
    table = _fidelity(jobs, results)

    def fill(folder: Path) -> None:
        (folder / "schedules").mkdir()
        for label, result in results.items():
            result.schedule.write_parquet(folder / "schedules" / f"{label}.parquet")
        metrics = pl.DataFrame(rows, infer_schema_length=None)
        metrics.write_parquet(folder / "metrics.parquet")
        metrics.write_csv(folder / "metrics.csv")
        write_json(rows, folder / MARKER)
        _write_fidelity(table, folder)

    write_folder(output, fill, marker=MARKER)
    show_table([_shown(row) for row in rows], json_to=json_to)
    show_table(_agreement(table), json_to=json_to)
    notes += _oracle_note(policies, columns)
    notes += [note for result in results.values() for note in (*result.notes, *_rejected(result))]
    for note in dict.fromkeys(notes):
        say(f"note: {note}", json_to=json_to)
    write_json(rows, json_to)
    say(f"Schedules and metrics written to {output}", json_to=json_to)


def choose_cluster(trace: Trace, text: str | None) -> Cluster:
    """Read a cluster from what the user wrote: a TOML file, NODESxGPUS[:TYPE], or nothing (the trace's own).

    Raises
    ------
    UsageError
        If the text is neither a file nor of that form.
    """
    from analysis.replay import Cluster

    if text is None:
        return Cluster.from_trace(trace)
    if short := re.fullmatch(r"(\d+)x(\d+)(?::(\S+))?", text):
        return Cluster.uniform(num_nodes=int(short[1]), num_gpus=int(short[2]), gpu_type=short[3])
    if not Path(text).suffix and not Path(text).exists():
        msg = f"--cluster {text!r}: neither a file nor NODESxGPUS[:TYPE]; give e.g. cluster.toml or 52x8:V100."
        raise UsageError(msg)
    return Cluster.from_toml(Path(text))


def _fidelity(jobs: pl.DataFrame, results: dict[str, ReplayResult]) -> pl.DataFrame | None:
    """Recorded against simulated waits, where the log says when jobs started and anything was simulated."""
    from analysis.replay.fidelity import fidelity, recorded_waits

    simulated = {label: result for label, result in results.items() if label != RECORDED}
    return fidelity(jobs, simulated) if simulated and recorded_waits(jobs).height else None


def _write_fidelity(table: pl.DataFrame | None, folder: Path) -> None:
    if table is None:
        return
    from analysis.plots import write_figures

    table.write_parquet(folder / "fidelity.parquet")
    table.write_csv(folder / "fidelity.csv")
    (folder / "figures").mkdir()
    write_figures({"fidelity": table}, folder / "figures", names=["fidelity"])


def _agreement(table: pl.DataFrame | None) -> list[dict[str, Any]]:
    """How like the log each schedule is, over all jobs."""
    if table is None:
        return []
    names = {"policy": "schedule", "num_jobs": "num_jobs", "mean_ratio": "mean_wait_over_recorded"}
    names |= {name: name for name in ("rank_correlation", "within_2x_share")}
    return (
        table.filter(pl.col("group") == "all").select(pl.col(old).alias(new) for old, new in names.items()).to_dicts()
    )


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


def _with_predictions(trace: Trace, models: list[str]) -> tuple[pl.DataFrame, dict[str, str | None], list[str]]:
    """Add one predicted column a model ('oracle' needs none); and say which models may have seen these jobs."""
    from predictors import load_model, predict_frame

    names = {text: "oracle" if text == "oracle" else Path(text).resolve().name for text in models}
    if twice := sorted({name for name in names.values() if list(names.values()).count(name) > 1}):
        msg = (
            f"--predictor: {', '.join(map(repr, twice))} is the name of more than one of {', '.join(models)}; a "
            "schedule bears its model's name, so copy or write the model to a folder of another name."
        )
        raise UsageError(msg)
    jobs, notes = trace.jobs, []
    columns: dict[str, str | None] = {}
    for text, name in names.items():
        columns[name] = None if text == "oracle" else f"predicted_duration_s__{name}"
        if text != "oracle":
            model = load_model(Path(text))
            predicted = predict_frame(model, trace.jobs, history=trace.jobs)["predicted_duration_s"]
            jobs = jobs.with_columns(predicted.alias(f"predicted_duration_s__{name}"))
            notes += _seen(name, model.window_, trace.jobs)
    return jobs, columns, notes


def _seen(name: str, window: tuple[str | None, str | None], jobs: pl.DataFrame) -> list[str]:
    """Say how many jobs lie in the time that a model was trained on: of those it may know the durations."""
    first, last = (None if text is None else datetime.fromisoformat(text) for text in window)
    if first is None or last is None:
        return []
    num_seen = jobs.filter(pl.col("submit_time").is_between(first, last)).height
    if not num_seen:
        return []
    return [
        f"{name} was trained on jobs submitted from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} (UTC), and "
        f"{num_seen:,} of the {jobs.height:,} jobs here lie in that time: if it saw them, its result is flattered. "
        "'hindcast report' compares on later jobs only."
    ]


def _oracle_note(policies: list[str], columns: dict[str, str | None]) -> list[str]:
    from analysis.replay import POLICIES

    knowing = [name for name in policies if name in POLICIES and POLICIES[name].uses_predictions]
    if not knowing or "oracle" not in columns:
        return []
    return [
        f"Under the oracle ({', '.join(knowing)}) every true duration is known beforehand, as for no real scheduler: "
        "a reference, not a forecast. Give models with --predictor."
    ]


def _rejected(result: ReplayResult) -> list[str]:
    """Say why jobs were not replayed."""
    refused = result.schedule.filter(pl.col("state") == "rejected")
    if not refused.height:
        return []
    reasons = refused.group_by("reason").len().sort("len", "reason", descending=[True, False])
    text = ", ".join(f"{reason} {count:,}" for reason, count in reasons.iter_rows())
    return [f"{refused.height:,} of {result.schedule.height:,} GPU jobs were not replayed and are in no mean: {text}."]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a metrics row that fit a terminal, in hours."""
    shown = {"schedule": row["schedule"]}
    shown |= {name: row[name] for name in ("num_finished", "num_unfinished", "num_rejected")}
    for name in SHOWN:
        value = row[name]
        if name.endswith("_s"):
            shown[f"{name.removesuffix('_s')}_h"] = None if value is None else value / 3600
        else:
            shown[name] = value
    return shown
