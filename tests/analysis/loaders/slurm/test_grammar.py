"""Slurm's small languages, on the cases of the pitfalls' part B and the grammar of the manual pages."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.loaders.slurm import grammar


def column(expression, values):
    return pl.DataFrame({"x": pl.Series(values, dtype=pl.String)}).select(expression(pl.col("x"))).to_series().to_list()


def gpus(parse, values):
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.String)}).select(parse(pl.col("x")))
    return frame.select("gpus", "gpu_type").rows()


def test_b37_duration_strings():
    given_ = ["1-02:03:04", "02:03:04", "35:45.828", "100-00:00:00", "00:25", "", "INVALID", None, "1-2", "1-2:3", "25"]
    right = [93784, 7384, 2145.828, 8_640_000, 25, None, None, None, 93600, 93780, None]
    assert column(grammar.duration_s, given_) == right


def test_b54_a_negative_duration_stays_negative_and_is_never_turned_round():
    assert column(grammar.duration_s, ["-0:00:16"]) == [-16]


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=10**8))
def test_every_duration_that_slurm_writes_is_read_back(seconds):
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert column(grammar.duration_s, [f"{days}-{clock}" if days else clock]) == [seconds]


def test_b39_limit_words_are_no_limit_or_the_partitions():
    frame = pl.DataFrame(
        {
            "limit": ["UNLIMITED", "Partition_Limit", "Partition_Limit", "01:00:00", "90", "00:00:00", None],
            "partition": ["gpu", "gpu", "other", "gpu", "gpu", "gpu", "gpu"],
        }
    )
    limit = grammar.limit_s(pl.col("limit"), partition=pl.col("partition"), partition_limits={"gpu": 172_800.0})
    assert frame.select(limit).to_series().to_list() == [None, 172_800, None, 3600, 5400, None, None]


@pytest.mark.parametrize(
    ("tres", "right"),
    [
        ("gres/gpu:a100=4,gres/gpu=4", (4, "a100")),
        ("gres/gpu=4,gres/gpu:a100=4", (4, "a100")),
        ("gres/gpu:a100=2", (2, "a100")),
        ("gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2", (2, "mixed")),
        ("gres/gpu=2", (2, None)),
        ("cpu=8,mem=60G,node=1", (None, None)),
        ("billing=1,cpu=4,gres/gpu:1g.10gb=1,mem=8G,node=1", (1, "1g.10gb")),
        ("gres/gpu=4,gres/gpu:a100=2", (4, None)),  # the types do not explain the total
        ("gres/gpu=1K", (1024, None)),
        ("gres/gpumem=16G,gres/gpuutil=50,gres/gpu=1", (1, None)),
        ("cpu=1,gres/gpu=0", (0, None)),
    ],
)
def test_b41_typed_and_untyped_gpus_are_not_added(tres, right):
    assert gpus(grammar.tres_gpus, [tres]) == [right]


def test_b41_memory_and_processors_of_a_tres_text():
    frame = pl.DataFrame({"x": ["cpu=8,mem=60G,node=1", "cpu=32,mem=256G", "mem=524288M,node=2", "mem=1T", "cpu=8"]})
    got = frame.select(grammar.tres_amount(pl.col("x"), name) for name in ("mem", "cpu", "node")).rows()
    assert got == [(61440, 8, 1), (262_144, 32, None), (524_288, None, 2), (1_048_576, None, None), (None, 8, None)]


@pytest.mark.parametrize(
    ("gres", "right"),
    [
        ("gpu:v100:4", (4, "v100")),
        ("gpu:4(IDX:0-3)", (4, None)),
        ("gpu:titanrtx:0", (0, None)),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:5)", (3, "mixed")),
        ("16?", (None, None)),
        ("gres:gpu:2", (2, None)),
        ("gpu:1g.10gb:3", (3, "1g.10gb")),
        ("gpu", (1, None)),
        ("craynetwork:1", (None, None)),
        ("gpu:a100:8(S:0-1),nvme:1", (8, "a100")),
    ],
)
def test_b43_old_gres_spellings(gres, right):
    assert gpus(grammar.gres_gpus, [gres]) == [right]


def test_b43_an_unresolved_gres_is_told_from_one_without_gpus():
    frame = pl.DataFrame({"x": ["16?", "craynetwork:1", None]}).select(grammar.gres_gpus(pl.col("x")))
    assert frame["names_gpus"].to_list() == [True, False, False]


def test_b57_memory_suffixes():
    frame = pl.DataFrame(
        {
            "m": ["4000Mc", "16Gn", "0n", "0c", "2097M", "100", "junk", None],
            "cpus": [8.0] * 8,
            "nodes": [2.0] * 8,
        }
    )
    mib = grammar.memory_mib(pl.col("m"), num_cpus=pl.col("cpus"), num_nodes=pl.col("nodes"))
    assert frame.select(mib).to_series().to_list() == [32_000, 32_768, None, None, 2097, 100, None, None]


def test_b58_state_decorations_and_cut_columns():
    given_ = ["CANCELLED by 1234", "OUT_OF_ME+", "COMPLETED ", "NODE_FAIL", "COMPL+", "CANCELLED+", "C+", "OOM", "ODD"]
    right = ["CANCELLED", "OUT_OF_MEMORY", "COMPLETED", "NODE_FAIL", "COMPLETED", "CANCELLED", "C", "OUT_OF_MEMORY"]
    assert column(grammar.full_state, given_) == [*right, "ODD"]


def test_every_state_is_one_of_ours():
    from analysis import schema

    assert set(grammar.STATES.values()) <= set(schema.STATUSES)
    assert set(grammar.BASE_STATES) | set(grammar.SHORT_STATES.values()) <= set(grammar.STATES)


def test_over_distinct_keeps_length_order_and_nulls():
    values = pl.Series("x", ["b", None, "a", "b"])
    got = grammar.over_distinct(values, up=pl.col("x").str.to_uppercase(), no=pl.col("x").is_null())
    assert got.rows() == [("B", False), (None, True), ("A", False), ("B", False)]
