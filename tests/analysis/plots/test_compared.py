"""Figures of several logs: each log is there by name, told apart in grey too, and the same bytes on every run."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import polars as pl
import pytest
from matplotlib.colors import to_hex

from analysis.characterize import CHARACTERIZATIONS, characterize
from analysis.errors import HindcastError
from analysis.loaders.synthetic import synthesize
from analysis.plots import FIGURES, render_svg, write_figures
from analysis.plots.style import DASHES, HATCHES, PALETTE, bar_style, line_style
from tests.rich_trace import rich_trace

OF_LOGS = sorted(name for name, spec in FIGURES.items() if spec.table in CHARACTERIZATIONS)
LOGS = ("one", "two $x$ <b>", "three with a name that is too long")
SHOWN = ("one", "two $x$ &lt;b&gt;", "three with a na…")


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, pl.DataFrame]]:
    logs = (synthesize(like="philly", num_jobs=250, seed=1), rich_trace(), rich_trace(seed=2))
    made = {log: characterize(trace) for log, trace in zip(LOGS, logs, strict=True)}
    return {name: {log: part[name] for log, part in made.items()} for name in CHARACTERIZATIONS}


@pytest.mark.parametrize("name", OF_LOGS)
def test_every_figure_takes_several_logs_and_names_them(name, tables):
    spec = FIGURES[name]
    logs = spec.content_of(tables[spec.table])
    assert len(logs) >= 2
    text = render_svg(name, logs)
    assert render_svg(name, logs) == text
    for log, shown in zip(LOGS, SHOWN, strict=True):
        assert (f">{shown}" in text) == (log in logs), log


@pytest.mark.parametrize("name", [name for name in OF_LOGS if FIGURES[name].compares])
def test_one_axes_holds_all_logs(name, tables):
    spec = FIGURES[name]
    logs = spec.content_of(tables[spec.table])
    assert len(logs) >= 2
    ax = spec.draw(logs)
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert len([label for label in labels if label.startswith(("one", "two", "three"))]) == len(logs)


def test_duration_curves_are_those_of_the_tables(tables):
    ax = FIGURES["duration_cdf"].draw(tables["duration_cdf"])
    for line, table in zip(ax.get_lines(), tables["duration_cdf"].values(), strict=True):
        curve = table.filter((pl.col("bucket") == "all") & (pl.col("weight") == "jobs"))
        assert line.get_xdata().tolist() == curve["duration_s"].to_list()
        assert line.get_ydata().tolist() == curve["share"].to_list()


def test_bars_and_marks_are_the_shares_of_each_log(tables):
    ax = FIGURES["gpu_demand"].draw(tables["gpu_demand"])
    words = [tick.get_text() for tick in ax.get_yticklabels()]
    for bars, (log, table) in zip(ax.containers, tables["gpu_demand"].items(), strict=True):
        drawn = dict(zip(words, (bar.get_width() for bar in bars), strict=True))
        by = dict(table.select(pl.col("bucket").cast(pl.String), "job_share").iter_rows())
        assert drawn["1 GPU"] == pytest.approx(by.get("1", 0.0)), log
        assert sum(drawn.values()) == pytest.approx(1.0)


def test_a_log_without_content_is_left_out_and_none_is_no_figure(tables, tmp_path):
    parts = dict(tables["gpu_demand"])
    parts["empty"] = parts["one"].head(0)
    assert "empty" not in render_svg("gpu_demand", parts)
    assert write_figures({"gpu_demand": {"empty": parts["empty"]}}, tmp_path) == []


def test_a_figure_of_panels_refuses_one_axes(tables):
    name = next(name for name in OF_LOGS if not FIGURES[name].compares)
    with pytest.raises(HindcastError, match="draws one log into one axes"):
        FIGURES[name].draw(tables[FIGURES[name].table])


def test_no_two_of_twenty_logs_look_the_same():
    curves = [(to_hex(style["color"]), str(style["linestyle"])) for style in map(line_style, range(20))]
    bars = [(style["color"], style["hatch"]) for style in map(bar_style, range(20))]
    assert len(set(curves)) == len(set(bars)) == 20
    # In grey, neighbours still differ.
    assert all(a[1] != b[1] for a, b in itertools.pairwise(curves))
    assert all(a[1] != b[1] for a, b in itertools.pairwise(bars))
    assert len(DASHES) == len(HATCHES) == len(PALETTE)


def test_names_of_any_script_and_with_control_characters_make_whole_files(tmp_path):
    trace = rich_trace(num_jobs=300)
    names = ["名前", "nul\x00l", "bell\x07", "a\r\nb", "<&>", "$\\bad{$", "\u202eright to left"]
    users = [names[number % len(names)] for number in range(trace.jobs.height)]
    table = characterize(trace.jobs.with_columns(user=pl.Series(users)), ["top_users"])
    # A warning would be an error here: the letters that the font lacks are nobody's fault.
    write_figures(table, tmp_path)
    text = "".join(ET.parse(tmp_path / "top_users.svg").getroot().itertext())
    for part in ("名前", "nul\N{REPLACEMENT CHARACTER}l", "bell\N{REPLACEMENT CHARACTER}", "<&>", "$\\bad{$"):
        assert part in text


def test_the_axis_of_logs_of_cpu_jobs_says_jobs():
    cpu = synthesize(like="venus", num_jobs=300, seed=1).jobs.with_columns(num_gpus=pl.lit(0.0))
    gpu = cpu.with_columns(num_gpus=pl.lit(2.0))
    users = {name: characterize(jobs, ["top_users"])["top_users"] for name, jobs in (("c", cpu), ("g", gpu))}
    labels = {
        tuple(logs): FIGURES["top_users"].function({log: users[log] for log in logs}).get_ylabel()
        for logs in ("c", "g", "cg")
    }
    assert labels == {
        ("c",): "Share of all jobs (%)",
        ("g",): "Share of all GPU time (%)",
        ("c", "g"): "Share of all GPU time or jobs (%)",
    }
