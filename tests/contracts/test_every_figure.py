"""Every registered figure draws its table: axis labels with units, and SVG that is the same on every run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import schema
from analysis.characterize import CHARACTERIZATIONS, characterize
from analysis.errors import UnknownNameError
from analysis.plots import FIGURES, render_svg, to_png, write_figures
from analysis.replay import Cluster, fidelity, replay
from analysis.replay.gantt import gantt
from analysis.replay.over_time import over_time
from analysis.replay.quantiles import quantiles
from analysis.report import compare_with_published
from analysis.trace import Trace, TraceMeta
from tests.rich_trace import rich_trace

# What an axis may be labelled with: a unit in brackets, a count of something, or names of categories.
HAS_UNIT = re.compile(
    r"\((%|s|h|days|log scale|h, local time|h, log scale|UTC, from \d{4}-\d\d-\d\d"
    r"|log of seconds; x = factor|log of seconds; dashed = factor 2|log of seconds|UTC)\)$"
    r"|^Jobs submitted per "
)
COUNTS_AND_NAMES = {
    "GPUs in use",
    "GPUs waited for",
    "Jobs waiting",
    "Node",
    "GPUs per job",
    "Last status",
    "Weekday",
    "Virtual cluster",
    "User",
    "Predictor",
    "Prediction",
    "Mixed up",
    "Base → policy, cluster",
    "Log",
    "Jobs",
    "Autocorrelation of hourly submissions",
    "Week of the log (0 = first)",
    "What is known of a job",
    "Ended jobs looked at",
}


def _trace() -> Trace:
    start = datetime(2024, 3, 1, tzinfo=UTC)
    rows = []
    for number in range(240):
        submit = start + timedelta(hours=2 * number, minutes=number)
        wait, run = float(number % 7) * 50, 10.0 * 1.2**number % 90_000 + 1
        begin = submit + timedelta(seconds=wait)
        rows.append(
            {
                "job_id": str(number),
                "user": f"u{number % 4}$x$<b>",
                "vc": f"queue {number % 3}",
                "submit_time": submit,
                "start_time": begin,
                "end_time": begin + timedelta(seconds=run),
                "num_gpus": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0][number % 7],
                "status": ["completed", "failed", "cancelled"][number % 3],
                "duration_s": run,
                "queueing_delay_s": wait,
                "censoring": "none",
                "flags": [],
            }
        )
    jobs = schema.sort_jobs(pl.DataFrame(rows, schema=schema.JOBS))
    return Trace(jobs, meta=TraceMeta(name="sixty"))


def _gains() -> pl.DataFrame:
    rows = [
        ("own", "fifo -> sjf", "knows_nothing", "knows_nothing", 7200.0, 0.0),
        ("own", "fifo -> sjf", "predicted", "user_median", 4500.0, 0.75),
        ("own", "fifo -> sjf", "oracle", "oracle", 3600.0, 1.0),
        ("mixed", "fifo_skip -> sjf_skip", "predicted", "user_median", 3000.0, None),
        ("mixed", "fifo_skip -> sjf_skip", "oracle", "oracle", 3000.0, None),
    ]
    names = ["cluster", "pair", "role", "predictor", "mean_jct_s", "captured_share"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    return table.with_columns(base_mean_jct_s=pl.lit(7200.0), like_for_like=pl.lit(value=True))


def _replayed() -> dict[str, pl.DataFrame]:
    jobs = TRACE.jobs.filter(pl.col("num_gpus") > 0)
    site = Cluster.uniform(num_nodes=4, num_gpus=8)
    policies = ("fifo", "easy", "sjf", "srtf_skip")
    results = {policy: replay(jobs, cluster=site, policy=policy) for policy in policies}
    return {
        "fidelity": fidelity(jobs, {name: results[name] for name in policies[:2]}),
        "replay_over_time": over_time(results),
        "replay_quantiles": quantiles(results),
        "gantt": gantt(results["fifo"], jobs),
    }


TRACE = _trace()
TABLES = {name: item.table(TRACE) for name, item in CHARACTERIZATIONS.items()} | {
    "scores": pl.DataFrame({"model": ["global_median", "boosted", "broken"], "log_mae": [2.1, 1.05, None]}),
    "predictions": pl.DataFrame(
        {"duration_s": [10.0, 100.0, None], "predicted_duration_s__boosted": [20.0, 90.0, 3.0]}
    ),
    "calibration_curve": pl.DataFrame(
        {"model": ["boosted"] * 3, "level": [0.1, 0.5, 0.9], "observed": [0.15, 0.5, 0.85]}
    ),
    "scores_by": pl.DataFrame(
        {
            "grouping": ["window", "window", "window", "size"],
            "value": ["2024-03-01", "2024-03-08", "2024-03-01", "GPUs 1"],
            "model": ["boosted", "boosted", "broken", "boosted"],
            "log_mae": [1.0, 1.2, None, 3.0],
        }
    ),
    "importance": pl.DataFrame(
        {
            "block": ["user", "history by owner", "hour", "group"],
            "kind": ["input", "history", "input", "input"],
            "importance": [0.6, 0.5, -0.01, None],
            "low": [0.4, None, -0.03, None],
            "high": [0.8, None, 0.01, None],
        }
    ),
    "shapes": pl.DataFrame(
        {
            "input": ["time_limit_s"] * 2 + ["num_gpus"] * 3 + ["hour"] * 2,
            "value": [60.0, 86_400.0, 1.0, 2.0, 8.0, 0.0, 23.0],
            "effect": [-1.0, 1.0, -0.1, 0.0, 0.2, 0.0, 0.0],
            "low": [-1.2, 0.8, -0.2, -0.1, 0.1, None, None],
            "high": [-0.8, 1.2, 0.0, 0.1, 0.3, None, None],
            "num_jobs": [3, 9, 5, 5, 1, 2, 2],
            "method": ["local effects"] * 5 + ["curve"] * 2,
        }
    ),
    "gains": _gains(),
    **_replayed(),
}
TABLES["published_comparison"] = compare_with_published({"sixty": TABLES})
# Sixty jobs without nodes do not fill every table.
RICH = characterize(rich_trace())
TABLES |= {
    spec.table: RICH[spec.table]
    for spec in FIGURES.values()
    if spec.table in RICH and not spec.content_of(TABLES[spec.table])
}


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_figure_draws_into_the_axes_that_it_is_given_and_labels_them(name: str) -> None:
    spec = FIGURES[name]
    figure = Figure()
    ax = figure.subplots()
    assert spec.has_content(TABLES[spec.table])
    assert spec.draw(TABLES[spec.table], ax=ax) is ax
    assert ax.has_data()
    for label in (ax.get_xlabel(), ax.get_ylabel()):
        assert HAS_UNIT.search(label) or label in COUNTS_AND_NAMES, label
    assert spec.title
    assert spec.caption.endswith(".")


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_figure_is_the_same_svg_on_every_run(name: str) -> None:
    table = TABLES[FIGURES[name].table]
    first = render_svg(name, table)
    assert render_svg(name, table) == first
    assert ET.fromstring(first).tag.endswith("svg")
    assert "<dc:date>" not in first


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_inline_figure_stays_in_its_page_and_takes_its_colour(name: str) -> None:
    text = render_svg(name, TABLES[FIGURES[name].table], inline=True, label="fig7")
    assert "http" not in text
    assert "src=" not in text
    assert "<image" not in text
    assert "<script" not in text
    assert "currentColor" in text
    assert 'role="img"' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert ids
    assert all(found.startswith("fig7-") for found in ids)
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
    assert {a or b for a, b in used} <= set(ids)


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_no_text_of_a_figure_is_below_8_points(name: str) -> None:
    ax: Axes = FIGURES[name].draw(TABLES[FIGURES[name].table])
    sizes = [text.get_fontsize() for text in [*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts]]
    box = ax.get_legend()
    sizes += [text.get_fontsize() for text in box.get_texts()] if box else []
    assert min(sizes) >= 8


def test_write_figures_leaves_out_what_has_no_table(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    few = {"gpu_demand": TABLES["gpu_demand"], "status": TABLES["status"].head(0)}
    written = write_figures(few, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["gpu_demand.png", "gpu_demand.svg"]
    assert sorted(written) == sorted(folder.iterdir())
    drawn = FIGURES["gpu_demand"].draw(TABLES["gpu_demand"]).get_figure(root=True)
    assert drawn is not None
    assert (folder / "gpu_demand.png").read_bytes() == to_png(drawn)


def test_an_unknown_figure_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no figure is named 'cdf' .*duration_cdf"):
        render_svg("cdf", TABLES["duration_cdf"])
