"""Figures of replays: what is drawn, read back from the axes."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PolyCollection

from analysis.plots import plot_gantt, plot_replay_allocation, plot_replay_jct, plot_replay_queue
from analysis.replay import Cluster, replay
from analysis.replay.gantt import gantt
from analysis.replay.over_time import over_time
from analysis.replay.quantiles import quantiles
from tests.jobs import make_jobs
from tests.replay_cases import START

SITE = Cluster.uniform(num_nodes=2, num_gpus=4)


def jobs_of(*rows: tuple[float, float, float]) -> pl.DataFrame:
    table = [
        {"submit_time": START + timedelta(seconds=at), "num_gpus": gpus, "duration_s": length, "user": f"u{i % 9}"}
        for i, (at, gpus, length) in enumerate(rows)
    ]
    return make_jobs(table)


JOBS = jobs_of((0, 8, 100), (0, 4, 200), (10, 1, 50), (20, 2, 300))


def series(*names: str) -> pl.DataFrame:
    return over_time(dict.fromkeys(names, replay(JOBS, cluster=SITE)), num_bins=10)


@pytest.mark.parametrize("num_schedules", [1, 3, 4, 8])
def test_a_few_queues_are_curves_and_many_are_strips(num_schedules: int):
    ax = plot_replay_queue(series(*(f"p{i}" for i in range(num_schedules))))
    if num_schedules <= 3:
        assert len(ax.get_legend().get_texts()) == num_schedules
        curve = ax.get_lines()[0].get_ydata()
        assert np.max(curve) == 3.0
        assert ax.get_yscale() == "symlog"
    else:
        assert [text.get_text() for text in ax.get_yticklabels()] == [f"p{i}" for i in range(num_schedules)]
        assert [note.get_text() for note in ax.texts] == ["1"] * num_schedules
        tops = [np.max(area.get_paths()[0].vertices[:, 1]) for area in ax.collections]
        assert tops == pytest.approx([num_schedules - 1 - i + 0.88 for i in range(num_schedules)])


def test_the_area_of_a_strip_is_the_allocation():
    table = series("fifo")
    ax = plot_replay_allocation(table)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0%", "25%", "50%", "75%", "100%"]
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert set(np.round(table["gpu_allocation"] * 0.88, 9)) <= set(np.round(heights, 9))


def test_long_names_of_schedules_keep_both_ends():
    ax = plot_replay_allocation(series("multifactor_skip__a_model_with_a_long_name__gpu_clustering", "fifo"))
    name = ax.get_yticklabels()[0].get_text()
    assert name.startswith("multifactor_sk…")
    assert name.endswith("gpu_clustering")


def test_a_curve_ends_at_the_longest_completion_time():
    result = replay(JOBS, cluster=SITE)
    line = plot_replay_jct(quantiles({"fifo": result})).get_lines()[0]
    assert line.get_xdata()[-1] == result.metrics()["max_jct_s"]
    assert line.get_ydata()[-1] == 1.0


def boxes(ax: object) -> dict[str, list[tuple[float, float]]]:
    """Lower and upper edge of every bar, by what the legend calls it."""
    found: dict[str, list[tuple[float, float]]] = {}
    for part in ax.collections:  # type: ignore[attr-defined]
        if isinstance(part, PolyCollection):
            edges = [(float(p.vertices[:, 1].min()), float(p.vertices[:, 1].max())) for p in part.get_paths()]
            found[str(part.get_label())] = edges
    return found


def test_neighbouring_lanes_of_a_job_are_one_bar_and_groups_have_colours():
    ax = plot_gantt(gantt(replay(JOBS, cluster=SITE), JOBS))
    # All 8 GPUs of both nodes are one bar; then 4 on n0; of the other two, 2 and 1 on n1.
    assert boxes(ax) == {"u0": [(0.0, 8.0)], "u1": [(0.0, 4.0)], "u3": [(5.0, 7.0)], "u2": [(4.0, 5.0)]}
    assert [text.get_text() for text in ax.get_yticklabels()] == ["n0", "n1"]
    assert ax.get_ylim() == (0, 8)


def test_bars_end_at_the_window_and_small_groups_share_grey():
    jobs = jobs_of(*[(10.0 * i, 1, 100.0 + i) for i in range(9)])
    window = (START + timedelta(seconds=60), START + timedelta(seconds=90))
    ax = plot_gantt(gantt(replay(jobs, cluster=SITE), jobs, window=window))
    low, high = ax.get_xlim()
    assert (high - low) * 86_400 == pytest.approx(30)
    assert list(boxes(ax)) == ["u7", "u6", "u5", "u4", "u3", "u2", "others"]
    assert len(boxes(ax)["others"]) == 2
    for part in ax.collections:
        if isinstance(part, PolyCollection):
            assert all(low <= x <= high for path in part.get_paths() for x in path.vertices[:, 0])
