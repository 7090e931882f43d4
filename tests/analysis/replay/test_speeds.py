"""Shipped speeds: computed again from the measurements, and the names that mean the same GPU."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from analysis.replay import speeds

Find = Callable[[str], Path]
TITAN_MODELS = ("vit", "vit-large", "roberta-base", "roberta-large")
ZEUS_KEYS = ["dataset", "network", "batch_size", "optimizer"]


def gavel_ratios(find: Find, gpu: str) -> pl.Series:
    """Rate of every single-GPU workload alone on a GPU over its rate on a V100."""
    with gzip.open(find("throughput/gavel_simulation_throughputs.json.gz"), "rt") as file:
        table = json.load(file)
    alone = {
        worker: {
            workload: row["null"]
            for text, row in table[worker].items()
            for workload, num_gpus in [ast.literal_eval(text)]
            if num_gpus == 1
        }
        for worker in (gpu, "v100")
    }
    return pl.Series([rate / alone["v100"][workload] for workload, rate in alone[gpu].items()])


def zeus_ratios(find: Find, gpu: str) -> pl.Series:
    """Time per epoch on a V100 over that on a GPU, each at its highest power limit."""
    tables = [
        pl.read_csv(find(f"power/summary_power_{name}.csv")).filter(
            pl.col("power_limit") == pl.col("power_limit").max()
        )
        for name in ("v100", gpu)
    ]
    both = tables[0].join(tables[1], on=ZEUS_KEYS, suffix="_here", validate="1:1")
    return both["time_per_epoch"] / both["time_per_epoch_here"]


def titan_ratios(find: Find) -> pl.Series:
    """Step time on one V100 over that on one A100, same model and batch size."""
    tables = []
    for gpu in ("V100", "A100"):
        files = [
            pl.read_csv(find(f"throughput/titan_{gpu}_{model}.csv")).with_columns(model=pl.lit(model))
            for model in TITAN_MODELS
        ]
        tables.append(pl.concat(files).filter(pl.col("placement") == 1))
    both = tables[0].join(tables[1], on=["model", "local_bsz"], suffix="_here", validate="1:1")
    return both["step_time"] / both["step_time_here"]


def measured(find: Find, gpu_type: str) -> pl.Series:
    """All pairs that were measured of a type."""
    if gpu_type == "A100":
        return titan_ratios(find)
    if gpu_type == "K80":
        return gavel_ratios(find, "k80")
    zeus = zeus_ratios(find, gpu_type.lower())
    return pl.concat([gavel_ratios(find, "p100"), zeus]) if gpu_type == "P100" else zeus


@pytest.mark.parametrize("gpu_type", sorted(set(speeds.shipped_speeds()) - {"V100"}))
def test_shipped_speeds_are_what_was_measured(real_data: Find, gpu_type: str):
    ratios = measured(real_data, gpu_type)
    row = speeds._facts()["types"][gpu_type]
    assert len(ratios) == row["num_pairs"]
    assert float(ratios.log().mean()) == pytest.approx(pl.Series([row["speed"]]).log()[0], abs=1e-3)
    assert (ratios.min(), ratios.max()) == pytest.approx((row["lowest"], row["highest"]), abs=6e-4)


def test_gavels_recommendation_model_is_what_makes_a_k80_look_fast(real_data: Find):
    # Its 5 of 26 pairs run faster, or nearly, on the slowest GPU; the note in the file says what the others give.
    ratios = gavel_ratios(real_data, "k80").sort()
    assert float(ratios.head(21).log().mean()) == pytest.approx(pl.Series([0.21]).log()[0], abs=0.05)
    assert int((ratios > 1).sum()) == 4


def test_every_shipped_speed_names_its_sources():
    facts = speeds._facts()
    assert facts["types"][facts["reference"]]["speed"] == 1.0
    for row in facts["types"].values():
        assert row["sources"]
        for source in row["sources"]:
            assert facts[source]["address"].startswith("https://")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("V100M16", "V100"),
        ("V100M32", "V100"),
        ("Tesla-V100", "V100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("volta", "V100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("a100-sxm4-80gb", "A100"),
        ("Quadro RTX 6000", "RTX6000"),
        ("P100", "P100"),
        ("K80", "K80"),
        ("A40", "A40"),
        # near misses that are other GPUs
        ("A10", "A10"),
        ("RTX A6000", "RTXA6000"),
        ("A800", "A800"),
        ("T4", "T4"),
    ],
)
def test_names_of_the_same_type(name: str, family: str):
    assert speeds.canonical_type(name) == family


def test_a_family_name_stands_for_its_variants_but_variants_differ():
    assert speeds.is_same_type("V100", "V100M32")
    assert speeds.is_same_type("V100M32", "V100")
    assert speeds.is_same_type("v100-m32", "V100M32")
    assert not speeds.is_same_type("V100M16", "V100M32")
    assert not speeds.is_same_type("A10", "A100")


def test_a_clusters_own_ratio_goes_before_the_shipped_one():
    own = {"V100": 2.0, "V100M16": 3.0, "G2": 0.5}
    found = {name: speeds.speed_of(name, own) for name in ("V100", "V100M16", "V100M32", "G2", "K80", "G3", None)}
    assert found == {
        "V100": 2.0,
        "V100M16": 3.0,
        "V100M32": 2.0,
        "G2": 0.5,
        "K80": speeds.shipped_speeds()["K80"],
        "G3": None,
        None: None,
    }
    assert speeds.unmeasured(["G3", "K80", "G2"], own) == ["G3"]
