"""When nodes are not there: the tables, the failure model, cluster files, and the closed form of restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import expm1
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.errors import BadFileError, UsageError
from analysis.replay import Cluster, replay
from tests.analysis.replay.test_node_events import cluster_with
from tests.jobs import make_jobs

T0 = datetime(2024, 3, 1, tzinfo=UTC)
MONTH = {"since": T0, "until": T0 + timedelta(days=30)}


def day(number: float) -> datetime:
    return T0 + timedelta(days=number)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_outages_are_put_in_order_and_naive_times_are_utc():
    rows = {
        "up": [None, datetime(2024, 3, 2)],
        "node_id": ["b", "a"],
        "down": [datetime(2024, 3, 5), datetime(2024, 3, 1)],
        "other": [1, 2],
    }
    nodes = pl.DataFrame({"node_id": ["a", "b"], "num_gpus": [1, 1]})
    cluster = Cluster(nodes, outages=pl.DataFrame(rows))
    assert cluster.outages.rows() == [("a", day(0), day(1), "failure"), ("b", day(4), None, "failure")]
    assert (cluster.is_steady, Cluster(nodes).is_steady) == (False, True)
    assert not Cluster(nodes.with_columns(available_from=pl.lit(day(1)))).is_steady


def test_bad_outages_are_refused_all_at_once():
    nodes = pl.DataFrame({"node_id": ["a"], "num_gpus": [1], "available_from": [day(2)], "available_to": [day(1)]})
    outages = pl.DataFrame({"node_id": ["a", "z", None], "down": [day(1)] * 3, "up": [day(0), day(2), day(2)]})
    with pytest.raises(UsageError, match="available_to is before.*down is null.*'z'; known are 'a'.*up is before"):
        Cluster(nodes, outages=outages)
    with pytest.raises(UsageError, match="column 'up' is missing"):
        Cluster(nodes, outages=outages.drop("up"))
    with pytest.raises(UsageError, match="'holiday'; expected one of failure, drain, absence"):
        Cluster(nodes, outages=outages.with_columns(kind=pl.lit("holiday")))
    with pytest.raises(UsageError, match="up does not hold instants"):
        Cluster(nodes, outages=outages.with_columns(up=1.0))


def test_gpu_time_that_is_there_counts_each_instant_once_and_drained_nodes():
    """In 10 days: n0 (4 GPUs) is away on days 2-5 by two outages that overlap, n1 (2 GPUs) from day 9 on."""
    cluster = cluster_with(4, 2, 1, available_to=[None, day(9), None])
    rows = [("n0", 2, 4, "failure"), ("n0", 3, 5, "absence"), ("n2", 0, 10, "drain"), ("n0", 3, 4, "failure")]
    outages = pl.DataFrame([{"node_id": n, "down": day(a), "up": day(b), "kind": kind} for n, a, b, kind in rows])
    cluster = Cluster(cluster.nodes, outages=outages)
    assert cluster.gpu_s(day(0), day(10)) == (70 - 12 - 2) * 86_400
    assert cluster.gpu_s(day(3), day(4)) == 3 * 86_400
    assert cluster.gpu_s(day(5), day(9)) == 28 * 86_400


def test_offered_load_counts_what_was_there():
    """Two days of two nodes, one of them away on the second: 3 node-days; submitted are 1.5."""
    jobs = make_jobs(
        [
            {"job_id": str(i), "submit_time": day(2 * i), "num_gpus": 1.0, "duration_s": 0.75 * 86_400.0}
            for i in range(2)
        ]
    )
    nodes = pl.DataFrame({"node_id": ["a", "b"], "num_gpus": [1, 1], "available_to": [None, day(1)]})
    assert replay(jobs, cluster=Cluster(nodes)).counts["offered_load"] == 0.5


# --- the failure model -----------------------------------------------------------------------------------------------


def test_each_node_fails_by_itself():
    few = Cluster.uniform(num_nodes=10, num_gpus=8).with_failures(mtbf_s=86_400, mttr_s=3_600, seed=1, **MONTH)
    nodes = pl.concat([few.nodes, few.nodes.head(1).with_columns(node_id=pl.lit("further"))])
    more = Cluster(nodes).with_failures(mtbf_s=86_400, mttr_s=3_600, seed=1, **MONTH)
    assert more.outages.filter(pl.col("node_id") != "further").equals(few.outages)
    other = Cluster(nodes).with_failures(mtbf_s=86_400, mttr_s=3_600, seed=2, **MONTH)
    assert not other.outages.equals(more.outages)
    assert more.outages["node_id"].n_unique() == 11


def test_failures_are_as_frequent_and_long_as_asked():
    """Renewals: 400 nodes x 30 days / (1 day + 1 h) failures but for the first one's start; means within 3 errors."""
    cluster = Cluster.uniform(num_nodes=400, num_gpus=1).with_failures(mtbf_s=86_400, mttr_s=3_600, seed=0, **MONTH)
    table = cluster.outages
    length = (table["up"] - table["down"]).dt.total_microseconds().to_numpy() / 1e6
    assert abs(length.mean() - 3_600) < 3 * 3_600 / np.sqrt(len(length))
    again = table.sort("node_id", "down").with_columns(before=pl.col("up").shift(1).over("node_id").fill_null(T0))
    between = (again["down"] - again["before"]).dt.total_microseconds().to_numpy() / 1e6
    assert (between > 0).all()  # outages of a node do not overlap
    assert table["down"].min() >= T0
    assert table["down"].max() < MONTH["until"]
    expected = 400 * 30 * 24 / 25
    assert abs(table.height - expected) < 3 * np.sqrt(expected)


def test_impossible_failures_are_refused():
    cluster = Cluster.uniform(num_nodes=200_000, num_gpus=1)
    with pytest.raises(UsageError, match="mtbf_s is 0.*mttr_s is -1.*seed is -3.*until .* is not after"):
        cluster.with_failures(mtbf_s=0, mttr_s=-1, seed=-3, since=T0, until=T0)
    with pytest.raises(UsageError, match="failures; expected at most 10,000,000"):
        cluster.with_failures(mtbf_s=3_600, mttr_s=60, seed=0, **MONTH)


@pytest.mark.parametrize("interval_s", [None, 250.0], ids=["none", "every_quarter"])
def test_the_closed_form_of_a_job_on_a_node_that_fails(interval_s: float | None):
    """Expected completion of work T in segments of t between checkpoints: T / t (1 / rate + repair) (exp(rate t) - 1).

    Exponential failures while the job runs; each loses what was done since the last checkpoint (J. T. Daly, Future
    Generation Computer Systems 22(3), 2006, doi:10.1016/j.future.2004.11.016, without checkpoint and restart time).
    2,000 nodes with one job each, that lasts as long as nodes do on average.
    """
    mtbf_s, mttr_s, work_s, num = 1_000.0, 300.0, 1_000.0, 2_000
    segment = interval_s or work_s
    cluster = Cluster.uniform(num_nodes=num, num_gpus=1)
    cluster = cluster.with_failures(mtbf_s=mtbf_s, mttr_s=mttr_s, seed=5, since=T0, until=day(1))
    nodes = cluster.nodes.with_columns(vc=pl.col("node_id"))  # each job stays on its node
    jobs = make_jobs(
        [
            {"job_id": str(i), "submit_time": T0, "num_gpus": 1.0, "duration_s": work_s, "vc": vc}
            for i, vc in enumerate(nodes["node_id"])
        ]
    )
    result = replay(jobs, cluster=Cluster(nodes, outages=cluster.outages), checkpoint_interval_s=interval_s)
    assert (result.schedule["end_time"] < day(1)).all()
    jct = result.job_metrics()["jct_s"].to_numpy()
    expected = work_s / segment * (mtbf_s + mttr_s) * expm1(segment / mtbf_s)
    error = jct.std(ddof=1) / np.sqrt(num)
    assert error < 0.03 * expected
    assert abs(jct.mean() - expected) < 3 * error, (jct.mean(), expected, error)
    # What the job held its GPU for is its work and what was lost.
    done = result.job_metrics()
    assert done["run_s"].to_list() == pytest.approx((work_s + result.schedule["wasted_gpu_s"]).to_list())


# --- cluster files ---------------------------------------------------------------------------------------------------

FILE = """
[[nodes]]
count = 2
num_gpus = 8

[[nodes]]
count = 1
num_gpus = 4
available_from = "2024-03-02"
available_to = 2024-03-05T02:00:00+02:00

[[outages]]
node_id = "n1"
down = "2024-03-02T12:00:00+00:00"
up = 2024-03-03T00:00:00Z
kind = "drain"

[[outages]]
node_id = "n0"
down = 2024-03-01T00:00:00
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_cluster_file_with_outages(tmp_path: Path):
    cluster = Cluster.from_toml(written(tmp_path, FILE))
    assert cluster.nodes.select("node_id", "available_from", "available_to").rows() == [
        ("n0", None, None),
        ("n1", None, None),
        ("n2", day(1), day(4)),
    ]
    assert cluster.outages.rows() == [("n0", day(0), None, "failure"), ("n1", day(1.5), day(2), "drain")]


def test_bad_outages_of_a_file_are_told_at_once(tmp_path: Path):
    text = (
        FILE.replace('"2024-03-02"', "7")
        .replace('"drain"', '"flood"')
        .replace('"n0"', "0")
        .replace("down = 2024", "when = 2024")
    )
    with pytest.raises(BadFileError) as caught:
        Cluster.from_toml(written(tmp_path, text))
    for part in (
        "5 problems",
        "[[nodes]] 2: available_from is 7, not an instant such as",
        "[[outages]] 1: kind is 'flood', not one of failure, drain, absence",
        "[[outages]] 2: unknown key 'when' (known: node_id, down, up, kind)",
        "[[outages]] 2: node_id is 0, not text",
        "[[outages]] 2: down is None, not an instant",
    ):
        assert part in str(caught.value)
    with pytest.raises(BadFileError, match="nodes that do not exist.*'n7'"):
        Cluster.from_toml(written(tmp_path, FILE.replace('"n1"', '"n7"')))
    with pytest.raises(BadFileError, match="outages is not a list of tables"):
        Cluster.from_toml(written(tmp_path, "outages = 3\n[[nodes]]\ncount = 1\nnum_gpus = 1"))
