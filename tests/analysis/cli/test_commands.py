"""Each command end to end on a small trace: files, JSON, exit code."""

from __future__ import annotations

import json

import polars as pl
import pytest

from analysis.cli import main
from analysis.trace import Trace

pytestmark = pytest.mark.usefixtures("capsys")


@pytest.fixture(scope="module")
def venus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands") / "venus"
    assert main(["synth", "--like", "venus", "--jobs", "1500", "--seed", "1", "-o", str(folder)]) == 0
    return folder


def json_of(capsys, *words):
    capsys.readouterr()
    assert main([*map(str, words), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_load_accounts_for_every_row(tmp_path, capsys):
    raw = tmp_path / "jobs.csv"
    raw.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,vc1\n\n")
    result = json_of(capsys, "load", "auto", raw, "-o", tmp_path / "T")
    report = result["load_report"]
    assert (report["rows_in"], report["rows_used"], report["rows_set_aside"]) == (2, 1, 1)
    assert Trace.read(tmp_path / "T").jobs["duration_s"].to_list() == [66.0]
    assert json_of(capsys, "check", tmp_path / "T")["rules"]["has_submit_time"] == 0


def test_load_table_takes_a_column_map(tmp_path, capsys):
    raw = tmp_path / "mine.csv"
    raw.write_text("id,sub,secs,g\n7,2024-03-01 08:00:00,60,2\n8,2024-03-01 08:10:00,30,0.5\n")
    words = ["load", "table", raw, "-o", tmp_path / "T", "--timezone", "Europe/Oslo"]
    json_of(capsys, *words, "--map", "job_id=id,submit_time=sub,duration_s=secs,num_gpus=g")
    jobs = Trace.read(tmp_path / "T").jobs
    assert jobs["num_gpus"].to_list() == [2.0, 0.5]
    assert jobs["submit_time"].dt.hour().to_list() == [7, 7]


def test_replay_writes_a_schedule_a_policy_and_metrics(venus, tmp_path, capsys):
    rows = json_of(capsys, "replay", venus, "--policy", "fifo,sjf_skip,easy", "-o", tmp_path / "R")
    assert [row["schedule"] for row in rows] == ["fifo", "sjf_skip", "easy"]
    for row in rows:
        schedule = pl.read_parquet(tmp_path / "R" / "schedules" / f"{row['schedule']}.parquet")
        finished = schedule.filter(pl.col("state") == "finished")
        assert finished.height == row["num_finished"]
        assert (finished["end_s"] >= finished["start_s"]).all()
    metrics = pl.read_parquet(tmp_path / "R" / "metrics.parquet")
    assert metrics["mean_jct_s"].to_list() == [row["mean_jct_s"] for row in rows]
    assert json.loads((tmp_path / "R" / "metrics.json").read_text()) == rows
    by_vc = pl.read_parquet(tmp_path / "R" / "by_vc.parquet")
    totals = by_vc.group_by("schedule", maintain_order=True).agg(pl.col("num_finished").sum())
    assert totals.rows() == [(row["schedule"], row["num_finished"]) for row in rows]
    for name in ("by_vc", "by_user", "over_time", "quantiles"):
        table = pl.read_parquet(tmp_path / "R" / f"{name}.parquet")
        assert table["schedule"].unique(maintain_order=True).to_list() == ["fifo", "sjf_skip", "easy"]
        assert (tmp_path / "R" / f"{name}.csv").read_text().count("\n") == table.height + 1
    drawn = {path.name for path in (tmp_path / "R" / "figures").iterdir()}
    names = ["replay_allocation", "replay_queue", "replay_queue_gpus", "replay_delays", "replay_jct"]
    names += [f"gantt__{row['schedule']}" for row in rows]
    assert {f"{name}.{kind}" for name in names for kind in ("svg", "png")} <= drawn
    json_of(capsys, "replay", venus, "--policy", "fifo", "--no-figures", "-o", tmp_path / "N")
    assert not (tmp_path / "N" / "figures").exists()


def test_train_predict_and_replay_with_the_model(venus, tmp_path, capsys):
    model, predicted = tmp_path / "model", tmp_path / "predicted.csv"
    assert main(["train", str(venus), "--model", "user_median", "-o", str(model)]) == 0
    assert main(["predict", str(model), str(venus), "-o", str(predicted)]) == 0
    frame = pl.read_csv(predicted)
    assert frame.height == 1500
    assert (frame["predicted_duration_s"] > 0).all()
    words = ["replay", venus, "--policy", "sjf", "--predictor", f"oracle,{model}", "-o", tmp_path / "R"]
    rows = json_of(capsys, *words)
    assert [row["schedule"] for row in rows] == ["sjf__oracle__consolidate", "sjf__model__consolidate"]
    assert rows[0]["mean_jct_s"] < rows[1]["mean_jct_s"]


def test_train_learns_from_gpu_jobs_unless_told_otherwise(tmp_path):
    raw = tmp_path / "mixed.csv"
    rows = [f"{i},{100 * i},{60 if i % 2 else 6000},{i % 2}" for i in range(40)]
    raw.write_text("\n".join(["job_id,submit_time,duration_s,num_gpus", *rows]) + "\n")
    assert main(["load", "table", str(raw), "--clock", "relative", "-o", str(tmp_path / "T")]) == 0
    medians = []
    for name, more in (("gpu", []), ("all", ["--cpu-jobs"])):
        words = ["train", str(tmp_path / "T"), "--model", "global_median", *more, "-o", str(tmp_path / name)]
        assert main(words) == 0
        assert main(["predict", str(tmp_path / name), str(tmp_path / "T"), "-o", str(tmp_path / f"{name}.csv")]) == 0
        medians.append(pl.read_csv(tmp_path / f"{name}.csv")["predicted_duration_s"][-1])
    assert medians[0] == pytest.approx(60)
    assert medians[1] > 60


def test_train_says_that_a_log_has_no_gpu_jobs(tmp_path, capsys):
    raw = tmp_path / "cpu.csv"
    raw.write_text("job_id,submit_time,duration_s,num_gpus\n1,0,60,0\n")
    assert main(["load", "table", str(raw), "--clock", "relative", "-o", str(tmp_path / "T")]) == 0
    assert main(["train", str(tmp_path / "T"), "-o", str(tmp_path / "M")]) == 2
    assert "--cpu-jobs" in capsys.readouterr().err


def test_backtest_writes_scores_and_predictions(venus, tmp_path, capsys):
    rows = json_of(capsys, "backtest", venus, "--models", "global_median,user_median", "-o", tmp_path / "B")
    assert [row["model"] for row in rows] == ["global_median", "user_median"]
    predictions = pl.read_parquet(tmp_path / "B" / "predictions.parquet")
    assert predictions.height == rows[0]["num_test"]
    assert pl.read_csv(tmp_path / "B" / "differences.csv").height == 1
    assert set(pl.read_csv(tmp_path / "B" / "scores_by.csv")["grouping"]) == {"window", "size", "user_age", "status"}
    assert (tmp_path / "B" / "figures" / "calibration_curve.png").stat().st_size > 5000


def test_backtest_with_refits_groups_and_a_random_split(venus, tmp_path, capsys):
    words = ["backtest", str(venus), "--models", "global_median,last_two", "-o", str(tmp_path / "B")]
    assert main([*words, "--refit", "daily", "--at", "start", "--by", "size", "--random-split"]) == 0
    told = capsys.readouterr()
    assert "last_two against global_median: " in told.out + told.err
    assert set(pl.read_csv(tmp_path / "B" / "scores_by.csv")["grouping"]) == {"size"}
    assert pl.read_csv(tmp_path / "B" / "splits.csv")["split"].to_list() == ["time", "random"] * 2
    assert pl.read_csv(tmp_path / "B" / "scores.csv")["num_fits"][0] > 1
    assert main([*words, "--refit", "hourly"]) == 2
    assert "daily, never, weekly" in capsys.readouterr().err


def test_characterize_writes_tables_and_figures(venus, tmp_path):
    assert main(["characterize", str(venus), "-o", str(tmp_path / "C")]) == 0
    summary = pl.read_parquet(tmp_path / "C" / "tables" / "summary.parquet")
    assert summary.height
    assert {p.suffix for p in (tmp_path / "C" / "figures").iterdir()} == {".svg", ".png"}


def test_report_is_one_page_and_the_same_bytes_again(venus, tmp_path):
    pages = []
    for name in ("a.html", "b.html"):
        words = ["report", venus, "--models", "global_median,user_median", "-o", tmp_path / name]
        assert main(list(map(str, words))) == 0
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    assert b"</html>" in pages[0]


def test_demo_walks_the_whole_road(tmp_path, capsys):
    assert main(["demo", "--jobs", "1000", "-o", str(tmp_path / "demo")]) == 0
    assert "Report: " in capsys.readouterr().out
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert {"report.html", "scores.csv", "gains.csv", "trace"} <= names


def test_replay_writes_event_logs(venus, tmp_path, capsys):
    json_of(capsys, "replay", venus, "--policy", "fifo,srtf", "--events", "-o", tmp_path / "R")
    for policy in ("fifo", "srtf"):
        events = pl.scan_parquet(tmp_path / "R" / "events" / f"{policy}.parquet")
        ended = events.filter(pl.col("event") == "ended").select("job_id", pl.col("time")).collect()
        schedule = pl.read_parquet(tmp_path / "R" / "schedules" / f"{policy}.parquet").drop_nulls("end_time")
        assert dict(ended.iter_rows()) == dict(schedule.select("job_id", "end_time").iter_rows())
    assert [path.name for path in tmp_path.iterdir()] == ["R"]
