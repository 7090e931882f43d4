"""What more or fewer nodes, or merged VCs, would do: on paper, and over the command line with a sacct export."""

from __future__ import annotations

import json
from datetime import timedelta

import polars as pl
import pytest

from analysis.cli import main
from analysis.errors import UsageError
from analysis.replay import Cluster, what_if
from analysis.replay.what_if import changed
from tests.jobs import make_jobs
from tests.replay_cases import START

JOBS = make_jobs(
    [
        {
            "job_id": str(i),
            "submit_time": START,
            "num_gpus": 4.0,
            "duration_s": 100.0,
        }
        for i in range(4)
    ]
).with_columns(deadline_time=START + timedelta(seconds=250))


def test_d92_four_gpus_more():
    """Four jobs one after the other on 4 GPUs: waits 0, 100, 200, 300, two late; on 8: 0, 0, 100, 100, none late."""
    table = what_if(JOBS, cluster=Cluster.uniform(num_nodes=1, num_gpus=4), changes=["+1x4", "+4x4"])
    shown = table.select(
        "change", "num_gpus", "mean_queueing_delay_s", "max_queueing_delay_s", "gpu_allocation", "num_deadlines_missed"
    )
    assert shown.rows()[0] == ("base", 4, 150.0, 300.0, 1.0, 2)
    assert shown.rows()[2] == ("+4x4", 20, 0.0, 0.0, 0.8, 0)
    assert table.select("num_paired", "saved_queueing_delay_s").rows() == [(None, None), (4, 100.0), (4, 150.0)]
    assert table["num_with_deadline"].to_list() == [4, 4, 4]
    again = what_if(JOBS[::-1], cluster=Cluster.uniform(num_nodes=1, num_gpus=4), changes=["+1x4", "+4x4"])
    assert again.equals(table)


def test_jobs_that_no_longer_fit_are_not_paired():
    table = what_if(
        JOBS.with_columns(num_gpus=pl.Series([4.0, 8.0, 4.0, 4.0])),
        cluster=Cluster.uniform(num_nodes=2, num_gpus=4),
        changes=["-1x4"],
    )
    assert table["num_rejected"].to_list() == [0, 1]
    assert table["num_paired"].to_list() == [None, 3]


def test_changes_of_a_cluster():
    nodes = pl.DataFrame({"node_id": ["n1", "n2", "n10"], "num_gpus": [8, 8, 4], "gpu_type": ["V100", "V100", None]})
    site = Cluster(nodes.with_columns(vc=pl.Series(["a", "b", "b"])))
    assert changed(site, "-1x8:V100").nodes["node_id"].to_list() == ["n1", "n10"]
    merged = changed(site, "merge-vcs,+2x4")
    assert (merged.vcs, merged.num_gpus, merged.nodes.height) == ([], 28, 5)
    with pytest.raises(UsageError, match="found 0 such nodes in 1x4, 2x8:V100"):
        changed(site, "-1x8")
    with pytest.raises(UsageError, match="merge-vcs,\\+1x8"):
        changed(site, "+1x8")
    with pytest.raises(UsageError, match="'twice' is no change"):
        changed(site, "twice")
    with pytest.raises(UsageError, match="named 'base'"):
        what_if(JOBS, cluster=site, changes={"base": site})


def test_an_interval_needs_ten_days_and_covers_no_change():
    jobs = pl.concat(
        [
            JOBS.with_columns(pl.col("submit_time") + timedelta(days=day), job_id=pl.col("job_id") + f"-{day}")
            for day in range(12)
        ]
    )
    one = Cluster.uniform(num_nodes=1, num_gpus=4)
    table = what_if(jobs, cluster=one, changes={"same": one, "twice": Cluster.uniform(num_nodes=2, num_gpus=4)})
    saved = table.select("saved_queueing_delay_s", "saved_low_s", "saved_high_s").rows()
    assert saved[1] == (0.0, 0.0, 0.0)
    assert saved[2] == pytest.approx((100.0, 100.0, 100.0))
    assert what_if(JOBS, cluster=one, changes=["+1x4"])["saved_low_s"].to_list() == [None, None]


def test_d92_from_a_sacct_export_to_the_table(tmp_path, capsys):
    export = tmp_path / "sacct.txt"
    lines = [
        f"{i}|ann|gpu|2024-03-01T00:00:00|2024-03-01T0{i}:00:00|2024-03-01T0{i + 1}:00:00|COMPLETED|gres/gpu:a100=4"
        for i in range(3)
    ]
    export.write_text("\n".join(["JobID|User|Partition|Submit|Start|End|State|AllocTRES", *lines]) + "\n")
    assert main(["load", "slurm", str(export), "--timezone", "UTC", "-o", str(tmp_path / "T")]) == 0
    words = ["what-if", str(tmp_path / "T"), "--cluster", "1x4:A100", "--change", "+1x4:A100", "--no-vc"]
    texts = []
    for name in ("x", "y"):
        files = [str(tmp_path / f"{name}.csv"), "--json", str(tmp_path / f"{name}.json")]
        assert main([*words, "-o", *files]) == 0
        texts.append((tmp_path / f"{name}.csv").read_bytes())
    assert texts[0] == texts[1]
    base, more = json.loads((tmp_path / "x.json").read_text())
    assert (base["mean_queueing_delay_s"], base["max_queueing_delay_s"]) == (3600.0, 7200.0)
    assert (more["mean_queueing_delay_s"], more["max_queueing_delay_s"]) == (1200.0, 3600.0)
    assert main([*words[:-2], "more", "--no-vc", "-o", str(tmp_path / "z.csv")]) == 2
    err = capsys.readouterr().err
    assert "no change" in err
    assert not (tmp_path / "z.csv").exists()
