"""Explanations on the command line: one job in words and as JSON, and each wrong turn in a sentence."""

from __future__ import annotations

import json

import polars as pl
import pytest

from analysis.cli import main
from analysis.loaders.synthetic import synthesize
from analysis.trace import Trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Trace and a model that was fitted to it."""
    place = tmp_path_factory.mktemp("explain")
    synthesize(like="venus", num_jobs=400, seed=3).write(place / "T")
    assert main(["train", str(place / "T"), "--model", "user_median", "-o", str(place / "M")]) == 0
    return place


@pytest.fixture
def run(folder, capsys):
    def call(*words):
        capsys.readouterr()
        code = main(["predict", str(folder / "M"), str(folder / "T"), *(str(word) for word in words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def test_one_job_is_explained_in_words_and_as_json(run, folder, tmp_path):
    jobs = Trace.read(folder / "T").jobs
    job = jobs.sort("submit_time").row(-1, named=True)
    code, out, _ = run("--explain", job["job_id"], "--json", tmp_path / "why.json")
    assert code == 0
    assert out.startswith(f"Job {job['job_id']}, user {job['user']}")
    assert "What would be predicted instead of" in out
    why = json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))
    past = jobs.filter(
        (pl.col("user") == job["user"])
        & (pl.col("end_time") < job["submit_time"])
        & (pl.col("status") != "failed")
        & (pl.col("num_gpus") > 0)
    ).sort("end_time", descending=True)
    assert [one["job_id"] for one in why["like_jobs"]] == past["job_id"].head(5).to_list() != []
    assert why["predicted_s"] == pytest.approx(past["duration_s"].head(20).median())
    code, out, err = run("--explain", job["job_id"], "--json", "-")
    assert json.loads(out) == why
    assert err.startswith(f"Job {job['job_id']}")


def test_all_jobs_may_be_predicted_beside(run, tmp_path):
    code, out, _ = run("--explain", "1", "-o", tmp_path / "p.csv")
    assert code == 0
    assert out.startswith("Job 1, ")
    assert pl.read_csv(tmp_path / "p.csv").height == 400


def test_an_unknown_job_is_one_sentence(run):
    code, out, err = run("--explain", "nobody")
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("hindcast: explain: no job of 400 with the id 'nobody'; expected exactly one (ids there are ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "predict: found neither -o FILE nor --explain JOB_ID"),
        (["-o", "p.csv", "--json", "p.json"], "--json: found without --explain"),
        (["--explain", "1", "-o", "p.xyz"], "the ending '.xyz' names no format"),
    ],
)
def test_what_does_not_fit_together_is_said(run, words, sentence):
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert sentence in err


def test_a_backtest_says_what_its_best_predictor_needs(folder, tmp_path):
    words = ["backtest", str(folder / "T"), "--models", "global_median,user_median", "--by", "none", "--explain"]
    assert main([*words, "-o", str(tmp_path / "B")]) == 0
    scores = pl.read_parquet(tmp_path / "B" / "scores.parquet").sort("log_mae")
    found = pl.read_csv(tmp_path / "B" / "importance.csv")
    assert found["model"].unique().to_list() == scores["model"].head(1).to_list() == ["user_median"]
    assert found.sort("importance", descending=True, nulls_last=True)["block"][0] in {"user", "history by owner"}
    assert set(pl.read_parquet(tmp_path / "B" / "shapes.parquet")["input"]) >= {"num_gpus", "hour"}
    drawn = {path.name for path in (tmp_path / "B" / "figures").iterdir()}
    assert {"importance.png", "importance.svg", "shape_gpus.png", "shape_hour.svg"} <= drawn
