"""Clusters: from a file, from equal nodes, and what is refused, all at once."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.errors import BadFileError, UsageError
from analysis.replay import Cluster

GOOD = """
name = "mixed"

[[nodes]]
count = 2
gpu_type = "A100"
num_gpus = 8
num_cpus = 64
mem_gib = 512.5
idle_w = 900
busy_w = 3600.5
vc = "prod"

[[nodes]]
count = 1
gpu_type = "G2"
num_gpus = 4
vc = "dev"

[speed]
G2 = 0.5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_cluster_file(tmp_path: Path):
    cluster = Cluster.from_toml(written(tmp_path, GOOD))
    assert cluster.name == "mixed"
    assert cluster.nodes.select("node_id", "gpu_type", "num_gpus", "vc").rows() == [
        ("n0", "A100", 8, "prod"),
        ("n1", "A100", 8, "prod"),
        ("n2", "G2", 4, "dev"),
    ]
    assert cluster.nodes.row(0, named=True) | {
        "num_cpus": 64.0,
        "mem_gib": 512.5,
        "idle_w": 900.0,
        "busy_w": 3600.5,
    } == (cluster.nodes.row(0, named=True))
    assert (cluster.num_gpus, cluster.vcs, cluster.gpu_types) == (20, ["dev", "prod"], ["A100", "G2"])
    assert (cluster.speed_of("G2"), cluster.speed_of("A100"), cluster.speed_of("G3")) == (0.5, 1.657, None)


def test_the_file_name_is_the_name_and_planner_links_are_left_alone(tmp_path: Path):
    text = "[[nodes]]\ncount = 1\nnum_gpus = 8\n[[links]]\nfrom = 'a'\n"
    cluster = Cluster.from_toml(written(tmp_path, text))
    assert (cluster.name, cluster.gpu_types, cluster.vcs) == ("cluster", [], [])


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path):
    text = """
    nodez = 1
    [[nodes]]
    count = -2
    gpu_type = 7
    num_gpus = 8
    [[nodes]]
    count = 1
    num_gpu = 8
    busy_w = -1.0
    """
    with pytest.raises(BadFileError) as caught:
        Cluster.from_toml(written(tmp_path, text))
    message = str(caught.value)
    assert caught.value.kind == "bad_cluster"
    for part in (
        "cluster.toml",
        "6 problems",
        "unknown key 'nodez'",
        "[[nodes]] 1: count is -2",
        "[[nodes]] 1: gpu_type is 7",
        "[[nodes]] 2: num_gpus is None",
        "[[nodes]] 2: unknown key 'num_gpu'",
        "[[nodes]] 2: busy_w is -1.0",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ('name = "half', "not_toml", "not TOML"),
        (GOOD[: GOOD.index("num_gpus")], "bad_cluster", "num_gpus is None"),
        ("", "bad_cluster", r"no \[\[nodes\]\]"),
        ("nodes = 3", "bad_cluster", r"no \[\[nodes\]\]"),
        ("[[nodes]]\ncount = 3\nnum_gpus = 0", "bad_cluster", "3 nodes and no GPU"),
        ("[[nodes]]\ncount = 1\nnum_gpus = true", "bad_cluster", "num_gpus is True"),
        ("[[nodes]]\ncount = 1\nnum_gpus = 8\n[speed]\nA100 = 0.0", "bad_cluster", "speed of 'A100' is 0.0"),
        ("[[nodes]]\ncount = 1\nnum_gpus = 8\n[speed]\nA100 = 'fast'", "bad_cluster", "not a table of GPU type"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, kind: str, part: str):
    with pytest.raises(BadFileError, match=part) as caught:
        Cluster.from_toml(written(tmp_path, text))
    assert caught.value.kind == kind


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(BadFileError, match="nothing there.*cluster file") as caught:
        Cluster.from_toml(tmp_path / "none.toml")
    assert caught.value.kind == "missing"
    with pytest.raises(BadFileError) as caught:
        Cluster.from_toml(tmp_path)
    assert caught.value.kind == "unreadable"


def test_equal_nodes_sort_by_their_number():
    cluster = Cluster.uniform(num_nodes=11, num_gpus=8, gpu_type="A100")
    assert cluster.nodes["node_id"].to_list() == [f"n{i:02d}" for i in range(11)]
    assert (cluster.num_gpus, cluster.name, cluster.gpu_types) == (88, "11 x 8", ["A100"])
    assert Cluster.uniform(num_nodes=1, num_gpus=1, name="one").name == "one"


def test_nodes_are_ordered_as_numbers_when_all_ids_are():
    nodes = pl.DataFrame({"node_id": ["10", "9"], "num_gpus": [1, 2]})
    assert Cluster(nodes).nodes["node_id"].to_list() == ["9", "10"]
    nodes = pl.DataFrame({"node_id": ["10", "9", "a"], "num_gpus": [1, 2, 3]})
    assert Cluster(nodes).nodes["node_id"].to_list() == ["10", "9", "a"]


def test_bad_nodes_are_refused_all_at_once():
    nodes = pl.DataFrame({"node_id": ["a", "a"], "num_gpus": [-1, 0], "mem_gib": [-2.0, 1.0]})
    with pytest.raises(UsageError, match="more than once.*'a'.*num_gpus is negative on 1.*mem_gib is negative on 1"):
        Cluster(nodes)
    with pytest.raises(UsageError, match="'node_id' is missing"):
        Cluster(pl.DataFrame({"num_gpus": [1]}))
    with pytest.raises(UsageError, match="null"):
        Cluster(pl.DataFrame({"node_id": ["a"], "num_gpus": [None]}))
    with pytest.raises(UsageError, match="no GPU"):
        Cluster.uniform(num_nodes=0, num_gpus=8)
