"""hindcast characterize: groups, a filter, and a Dask cluster."""

from __future__ import annotations

import json

import polars as pl
import pytest

from analysis.characterize import CHARACTERIZATIONS
from analysis.cli import main
from analysis.cli.characterize_options import job_filter
from analysis.loaders.synthetic import synthesize

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def venus(tmp_path_factory):
    return synthesize(like="venus", num_jobs=600, seed=2).write(tmp_path_factory.mktemp("cli") / "venus")


def characterize(folder, output, *words):
    return main(["characterize", str(folder), "-o", str(output), *words])


def test_groups_and_a_filter(venus, tmp_path, capsys):
    words = ["--by", "vc,gpu_bucket", "--where", "num_gpus >= 4 AND status = 'completed'"]
    assert characterize(venus, tmp_path / "C", *words) == 0
    written = {path.stem for path in (tmp_path / "C" / "tables").glob("*.parquet")}
    assert written == set(CHARACTERIZATIONS)
    jobs = pl.read_parquet(venus / "jobs.parquet").filter(num_gpus=pl.col("num_gpus"), status="completed")
    expected = jobs.filter(pl.col("num_gpus") >= 4).group_by("vc").agg(n=pl.len()).sort("vc")
    summary = pl.read_parquet(tmp_path / "C" / "tables" / "summary.parquet")
    assert summary.columns[:2] == ["vc", "gpu_bucket"]
    counts = summary.group_by("vc").agg(n=pl.col("num_jobs").sum()).sort("vc")
    assert counts.rows() == expected.rows()
    out = capsys.readouterr().out
    assert "gpu_bucket" in out
    assert f"{len(CHARACTERIZATIONS)} tables written to" in out
    assert json.loads((tmp_path / "C" / "characterization.json").read_text())


def test_a_dask_cluster_writes_the_same_bytes(venus, tmp_path):
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        words = ["--engine", "dask", "--address", cluster.scheduler_address]
        assert characterize(venus, tmp_path / "D", *words) == 0
    assert characterize(venus, tmp_path / "P") == 0
    files = sorted(path.name for path in (tmp_path / "P" / "tables").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "D" / "tables").iterdir())
    different = [
        name for name in files
        if (tmp_path / "P" / "tables" / name).read_bytes() != (tmp_path / "D" / "tables" / name).read_bytes()
    ]  # fmt: skip
    assert different == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--by", "vcs"], "no grouping of the jobs is named 'vcs'"),
        (["--where", "num_gpus >"], "is no condition in SQL"),
        (["--where", "num_gpus = 'x'"], "is no condition in SQL (cannot compare string with numeric type"),
        (["--where", "1"], "is no condition in SQL (filter predicate must be of type `Boolean`"),
        (["--where", "submit_time > '2020-01-01'"], "a day as \"submit_time >= DATE '2024-05-01'\""),
        (["--where", "user IN (SELECT * FROM read_csv('/etc/passwd'))"], "is no condition in SQL"),
        (["--where", "gpus > 1"], "no column of the jobs table is named 'gpus'"),
        (["--engine", "spark"], "no engine is named 'spark'"),
        (["--engine", "dask"], "the address of the scheduler is missing"),
        (["--address", "tcp://127.0.0.1:1"], "add --engine dask"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(venus, tmp_path, capsys, words, says):
    assert characterize(venus, tmp_path / "X", *words) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "X").exists()


def test_columns_whose_names_are_words_of_sql_need_no_quotes():
    jobs = pl.DataFrame({"user": ["ann", "bob", "ann"], "group": ["a", "a", "the user's group"], "num_gpus": [1, 8, 8]})
    wanted = {
        "user = 'ann'": 2,
        "num_gpus >= 8 AND USER = 'ann'": 1,
        "\"user\" = 'ann' AND group = 'a'": 1,
        "group = 'the user''s group'": 1,
    }
    assert {text: jobs.filter(job_filter(text)).height for text in wanted} == wanted
