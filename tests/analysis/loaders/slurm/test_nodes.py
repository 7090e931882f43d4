"""A cluster's nodes from scontrol and sinfo, and host lists; all inputs are invented in the tools' forms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import BadFileError
from analysis.loaders.slurm.hostlist import HostlistError, expand_hostlist
from analysis.loaders.slurm.nodes import (
    is_scontrol_nodes,
    is_sinfo,
    read_nodes,
    read_partition_limits,
    read_scontrol_nodes,
    read_sinfo,
)

NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=0.01 "
    "AvailableFeatures=(null) "
    "Gres={gres} NodeAddr={name} NodeHostName={name} OS=Linux 6.1 #1 SMP x RealMemory=262144 AllocMem=0 FreeMem=250000 "
    "State={state} ThreadsPerCore=1 Partitions={partitions} BootTime=2026-01-01T00:00:00 "
    "CfgTRES=cpu=32,mem=256G,billing=32{tres} AllocTRES= CurrentWatts=0 AveWatts=0"
)


def node(name, gres="(null)", *, partitions="p", state="IDLE", tres=""):
    return NODE.format(name=name, gres=gres, partitions=partitions, state=state, tres=tres)


def write(tmp_path, *lines):
    path = tmp_path / "nodes.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def table(nodes):
    return nodes.select("node_id", "gpu_type", "num_gpus", "vc").rows()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[01-03,07],cpu5", ["gpu01", "gpu02", "gpu03", "gpu07", "cpu5"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a[0-6:3]", ["a0", "a3", "a6"]),
        ("None assigned", []),
        ("", []),
        ("node7", ["node7"]),
    ],
)
def test_host_lists(text, hosts):
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize("text", ["a[1-", "a[x]", "a]1[", "a[5-2]", "a[1-99999999]", "a[1-2000]b[1-2000]"])
def test_what_is_no_host_list_is_refused_by_its_text(text):
    with pytest.raises(HostlistError, match="host list '"):
        expand_hostlist(text)


@settings(deadline=None)
@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=30, unique=True), st.integers(1, 6))
def test_a_list_of_single_numbers_names_each_host_once(numbers, width):
    text = f"n[{','.join(str(number).zfill(width) for number in numbers)}]"
    assert expand_hostlist(text) == [f"n{str(number).zfill(width)}" for number in numbers]


def test_scontrol_nodes_give_gpus_types_and_memory(tmp_path):
    path = write(
        tmp_path,
        node("gpu2", "gpu:a100:4(S:0-1),nvme:1"),
        node("gpu10", "gpu:v100:2,gpu:a100:2"),
        node("cpu1"),
        node("typeless", "gpu:8"),
        node("bytres", tres=",gres/gpu=4,gres/gpu:h100=4"),
        node("cloud1", "gpu:a100:8", state="FUTURE"),
    )
    assert is_scontrol_nodes(path)
    nodes = read_scontrol_nodes(path)
    assert table(nodes) == [
        ("bytres", "h100", 4, "p"),
        ("cpu1", None, 0, "p"),
        ("gpu10/a100", "a100", 2, "p"),
        ("gpu10/v100", "v100", 2, "p"),
        ("gpu2", "a100", 4, "p"),
        ("typeless", None, 8, "p"),
    ]
    assert nodes["mem_gib"].to_list() == [256, 256, 128, 128, 256, 256]
    assert nodes["num_cpus"].to_list() == [32, 32, 16, 16, 32, 32]


def test_scontrol_over_several_lines_is_the_same_cluster(tmp_path):
    one_line = write(tmp_path, node("a", "gpu:a100:4"), node("b", "gpu:v100:2"))
    several = tmp_path / "several.txt"
    several.write_text("\n\n".join(line.replace(" Gres=", "\n   Gres=") for line in one_line.read_text().splitlines()))
    assert read_nodes(one_line).equals(read_nodes(several))


def test_b56_a_node_in_two_partitions_is_counted_once(tmp_path):
    by_sinfo = write(
        tmp_path, "NODELIST|PARTITION|CPUS|MEMORY|GRES|STATE", "n1|p*|32|1024|gpu:8|idle", "n1|q|32|1024|gpu:8|idle"
    )
    assert is_sinfo(by_sinfo)
    nodes = read_sinfo(by_sinfo)
    assert nodes["num_gpus"].sum() == 8
    assert table(nodes) == [("n1", None, 8, None)]
    by_scontrol = write(tmp_path, node("n1", "gpu:8", partitions="p,q"))
    assert table(read_nodes(by_scontrol)) == [("n1", None, 8, None)]


def test_sinfo_in_columns_and_by_groups(tmp_path):
    path = write(
        tmp_path,
        "PARTITION NODELIST        CPUS GRES         MEMORY",
        "gpu*      gpu[01-02,05]   64+  gpu:a100:8   512000",
        "cpu       cpu1            128  (null)       256000",
    )
    nodes = read_sinfo(path)
    assert table(nodes) == [
        ("cpu1", None, 0, "cpu"),
        ("gpu01", "a100", 8, "gpu"),
        ("gpu02", "a100", 8, "gpu"),
        ("gpu05", "a100", 8, "gpu"),
    ]
    assert nodes.filter(node_id="gpu01")["num_cpus"].item() == 64


def test_a_record_without_a_name_is_no_node(tmp_path):
    path = write(tmp_path, node("a", "gpu:2"), "", "lost words", "", "State=IDLE CPUTot=3", "", node("b"))
    assert read_nodes(path)["node_id"].to_list() == ["a", "b"]


def test_two_hardwares_for_one_node_are_refused(tmp_path):
    path = write(tmp_path, "NODELIST|GRES", "n1|gpu:8", "n1|gpu:4")
    with pytest.raises(BadFileError, match=r"different hardware for one and the same node \(n1\)"):
        read_sinfo(path)


def test_another_file_is_refused_with_what_to_do(tmp_path):
    path = write(tmp_path, "id,gpus", "1,2")
    with pytest.raises(BadFileError, match="scontrol show nodes -o"):
        read_nodes(path)


def test_partition_limits(tmp_path):
    path = write(
        tmp_path,
        "PartitionName=gpu AllowGroups=ALL MaxTime=2-00:00:00 MinNodes=0 State=UP",
        "PartitionName=open AllowGroups=ALL MaxTime=UNLIMITED MinNodes=0 State=UP",
    )
    assert read_partition_limits(path) == {"gpu": 172_800.0}


def test_a_replay_takes_the_nodes_as_its_cluster(tmp_path):
    from analysis.replay import Cluster

    path = write(tmp_path, node("a", "gpu:a100:4"), node("b", "gpu:v100:2"))
    cluster = Cluster(read_nodes(path))
    assert cluster.nodes["num_gpus"].to_list() == [4, 2]
