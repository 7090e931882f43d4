"""Alibaba's GenAI of 2026 (cluster-trace-v2026-GenAI): telemetry of an image-generation service, and its requests.

Source: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-GenAI. Licence: none is stated, so it is
recorded as unknown. These are **no jobs**: the jobs table is empty, everything is in ``usage_series``. A row of a
telemetry file is a measurement; which one, only the file's name says. A row of ``lora_request_trace`` is a request.

Zones: the telemetry's ``timestamp_anon`` are shifted epoch seconds, so neither date nor hour mean anything (clock
"relative"). The requests' ``gmt_create`` is naive; Asia/Shanghai is assumed (``timezone`` overrides). The two **cannot
be aligned**.

Assumptions:

* Entities are containers; the rows of API requests have none, their entity is ``all``. Requests belong to the entity
  ``groupId`` and give a value of each metric ``request_<what>`` that they state, and 1 for the metrics
  ``request_<status>`` and ``request_type_<type>``, so that sums are counts.
* Milliseconds become seconds, bytes GiB, percent fractions; pod memory is a fraction already (the README says
  percent). The request rate is anonymised: only proportions mean something. A missing value is null.

Columns left behind: ``checkpoint_model_version_id`` (a name, no number). ``data_trace_processed`` has no times, so it
cannot be a series and is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.cells import PROBLEM, Cell, number, read_cells, text, time
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.many_files import bare_name, group_files
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE
from analysis.loaders.zones import ZoneNotes, is_plausible, to_utc
from analysis.trace import Trace, TraceMeta

__all__ = ["read_genai"]

META: Final = TraceMeta(
    name="genai",
    source="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-GenAI",
    citation="Alibaba cluster-trace-v2026-GenAI (EuroSys 2026)",
    time_zone="Asia/Shanghai",
    time_zone_certainty="assumed",
    coverage="telemetry of an image-generation service over less than a day; requests of 24 days",
)
MISSING: Final = ("", "None", "NULL")
TELEMETRY: Final = ("timestamp_anon", "value", "container_ip")
REQUESTS: Final = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds", "groupId")
MS: Final = 1000.0
GIB: Final = 1024.0**3
PERCENT: Final = 100.0
#: File -> name of the metric with its unit, what a value is divided by.
METRICS: Final = {
    "qps": ("request_rate", 1.0),
    "queue_size_raw_anon": ("queue_size", 1.0),
    "queue_rt_raw_anon": ("queue_response_s", MS),
    "pipeline_update_latency_anon": ("pipeline_update_s", MS),
    "basemodel_update_latency_anon": ("base_model_update_s", MS),
    "base_model_update_latency_anon": ("base_model_update_s", MS),
    "lora_update_latency_anon": ("lora_update_s", MS),
    "controlnet_latency_data_anon": ("controlnet_s", MS),
    "model_predict_data_anon": ("model_predict_s", MS),
    "pipeline_inference_data_anon": ("pipeline_inference_s", MS),
    "pod_memory_util_anon": ("mem_utilization", 1.0),
    "pod_gpu_duty_cycle_anon": ("gpu_utilization", PERCENT),
    "pod_gpu_memory_used_bytes_anon": ("gpu_mem_used_gib", GIB),
}
RATES: Final = {"Generative Requests": "generative_request_rate", "API Requests": "api_request_rate"}
STATUSES: Final = {"SUCCEED": "completed", "FAILED": "failed", "PROCESSING": "running"}
REQUEST_COLUMNS: Final[dict[str, Cell]] = {
    "time": time("gmt_create", "%Y-%m-%d %H:%M:%S"),
    "entity": text("groupId", missing=MISSING),
    "status_raw": text("predict_status", missing=MISSING),
    "type": text("predict_type", missing=MISSING),
    "request_exec_s": number("exec_time_seconds"),
    "request_prompt_length": number("prompt_length"),
    "request_negative_prompt_length": number("negative_prompt_length"),
    "request_images": number("num_images_per_prompt"),
    "request_inference_steps": number("num_inference_steps"),
    "request_loras": number("num_lora"),
}
FILES: Final = (
    f"telemetry ({', '.join(TELEMETRY)}; the file's name says the metric) and/or lora_request_trace "
    f"({', '.join(REQUESTS)}, …)"
)


def _is_telemetry(path: Path) -> bool:
    return has_columns(path, TELEMETRY)


def _is_requests(path: Path) -> bool:
    return has_columns(path, REQUESTS)


@loader(
    "genai",
    summary="Alibaba 2026 GenAI serving: telemetry and requests (no jobs)",
    files=FILES,
    sniff=lambda paths: float(any(_is_telemetry(path) or _is_requests(path) for path in paths)),
)
def read_genai(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read telemetry and requests of Alibaba's image-generation service.

    Parameters
    ----------
    paths : sequence of Path
        Any of the files (``.csv``, ``.csv.gz``, ``.tar.gz``), or their folder.
    timezone : str, optional
        Zone of the requests' naive times, instead of Asia/Shanghai.
    name : str, optional
        Name of the trace, by default "genai".

    Returns
    -------
    Trace
        Without jobs; usage_series sorted by (metric, time, entity, value).
    """
    files = group_files(paths, roles={"telemetry": _is_telemetry, "requests": _is_requests}, expected=FILES)
    meta = replace(META, name=name or META.name, clock="relative" if files["telemetry"] else "absolute")
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    parts = [_telemetry(path) for path in files["telemetry"]]
    parts += [_requests(path, meta.time_zone) for path in files["requests"]]
    notes = [note for part in parts for note in part.notes]
    if files["telemetry"] and files["requests"]:
        notes.append("Telemetry and requests have different clocks: they cannot be aligned.")
    series = pl.concat([schema.empty_table("usage_series"), *(part.series for part in parts)])
    rejects = pl.concat([schema.empty_table("rejects"), *(part.rejects for part in parts)])
    tables = {"usage_series": series.sort("metric", "time", "entity", "value"), "rejects": rejects}
    times = series["time"]
    window = (times.min().isoformat(), times.max().isoformat()) if len(times) else (None, None)  # type: ignore[union-attr]
    return finish_without_jobs(
        meta=replace(meta, window=window), raws=[part.raw for part in parts], tables=tables, notes=notes
    )


@dataclass(frozen=True)
class _Part:
    """What one file gave."""

    raw: Delimited
    series: pl.DataFrame
    rejects: pl.DataFrame
    notes: list[str]


def _set_aside(raw: Delimited, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that have a time and can be read, and the rejects."""
    absurd = pl.when(~is_plausible("time", rows["time"].dtype)).then(pl.lit("implausible_time"))
    reason = pl.coalesce(PROBLEM, pl.when(pl.col("time").is_null()).then(pl.lit("no_time")), absurd)
    rows = rows.with_columns(reason=reason)
    aside = rows.drop_nulls("reason").select(
        file=pl.lit(raw.name), line=LINE, reason="reason", raw=pl.lit(None, dtype=pl.String)
    )
    return rows.filter(pl.col("reason").is_null()), aside


def _telemetry(path: Path) -> _Part:
    raw = read_delimited(path, required=TELEMETRY)
    stem = bare_name(path)
    metric, divisor = METRICS.get(stem, (stem, 1.0))
    cells = {
        "time": number("timestamp_anon"),
        "entity": text("container_ip", missing=MISSING),
        "value": number("value"),
        "kind": text("request_type", missing=MISSING),
    }
    rows, rejects = _set_aside(raw, read_cells(raw.frame, cells).collect())
    kind = pl.col("kind").replace_strict(RATES, default=metric) if "kind" in rows.columns else pl.lit(metric)
    series = rows.with_columns(
        to_utc(rows["time"], zone="UTC"),
        pl.col("entity").fill_null("all"),
        pl.col("value") / divisor,
        metric=kind.cast(pl.String),
    ).select(*schema.USAGE_SERIES)
    notes = [] if stem in METRICS else [f"{raw.name}: the metric {stem!r} is not documented; its unit is not known."]
    return _Part(raw, series, rejects, notes)


def _requests(path: Path, zone: str) -> _Part:
    raw = read_delimited(path, required=REQUESTS)
    choices = ZoneNotes()
    rows, rejects = _set_aside(raw, read_cells(raw.frame, REQUEST_COLUMNS).collect())
    status = pl.col("status_raw").replace_strict(STATUSES, default="unknown", return_dtype=pl.String)
    rows = rows.with_columns(
        to_utc(rows["time"], zone=zone, notes=choices),
        pl.col("entity").fill_null("all"),
        status=pl.lit("request_") + status.fill_null("unknown"),
        type=pl.lit("request_type_") + pl.col("type").str.to_lowercase(),
    )
    stated = [column for column in REQUEST_COLUMNS if column.startswith("request_") and column in rows.columns]
    values = rows.unpivot(stated, index=["entity", "time"], variable_name="metric").drop_nulls("value")
    marks = [rows.select("entity", "time", metric=mark, value=1.0).drop_nulls("metric") for mark in ("status", "type")]
    series = pl.concat([part.select(*schema.USAGE_SERIES) for part in (values, *marks)])
    unknown = rows.filter(pl.col("status") == "request_unknown")["status_raw"].value_counts(sort=True).rows()
    notes = [f"Requests' times read in {zone}.", *choices.sentences(zone)]
    if unknown:
        notes.append("Unknown request statuses: " + ", ".join(f"{raw_} ({count})" for raw_, count in unknown) + ".")
    return _Part(raw, series, rejects, notes)
