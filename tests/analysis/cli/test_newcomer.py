"""What a newcomer ran into: each a wrong turn that once ended in a traceback, a lost file or a misleading number."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from analysis.cli import main
from analysis.loaders.synthetic import synthesize
from analysis.trace import Trace


@pytest.fixture(scope="module")
def trace_folder(tmp_path_factory):
    return synthesize(like="venus", num_jobs=400, seed=3).write(tmp_path_factory.mktemp("newcomer") / "T")


@pytest.fixture
def run(capsys):
    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def test_ctrl_c_while_modules_are_imported_is_no_traceback():
    program = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from analysis.cli import main\n"
        "sys.exit(main(['check', 'T']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "hindcast: stopped; nothing half-written was left.\n"


def test_ctrl_c_in_the_middle_of_work_says_so(run, trace_folder, monkeypatch, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pl.DataFrame, "write_csv", stop)
    code, _, err = run("replay", trace_folder, "--policy", "fifo", "-o", tmp_path / "R")
    assert code == 130
    assert "stopped" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", ["99999999x8", "1x9999999999", "1x99999999999999999999"])
def test_a_cluster_of_a_size_that_no_machine_holds_is_refused(run, trace_folder, tmp_path, size):
    code, _, err = run("replay", trace_folder, "--cluster", size, "-o", tmp_path / "R")
    assert code == 2
    assert "expected at most 200,000 nodes and 2,000,000 GPUs" in err
    count, width = size.split("x")
    (tmp_path / "c.toml").write_text(f"[[nodes]]\ncount = {count}\nnum_gpus = {width}\n")
    code, _, err = run("replay", trace_folder, "--cluster", tmp_path / "c.toml", "-o", tmp_path / "R")
    assert code == 1
    assert "expected at most 200,000 nodes" in err or "is not TOML" in err


def test_predictions_are_not_written_over_what_is_read(run, trace_folder, tmp_path):
    assert run("train", trace_folder, "--model", "user_median", "-o", tmp_path / "M")[0] == 0
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,submit_time,num_gpus\n1,2030-01-01 00:00:00,1\n")
    before = jobs.read_bytes()
    for source, output in [
        (jobs, jobs),
        (trace_folder, trace_folder / "jobs.parquet"),
        (jobs, tmp_path / "M" / "p.csv"),
    ]:
        code, _, err = run("predict", tmp_path / "M", source, "-o", output)
        assert code == 2
        assert "choose another place" in err
    assert jobs.read_bytes() == before
    assert Trace.read(trace_folder).jobs.height == 400


def test_a_report_is_not_written_into_its_trace(run, trace_folder):
    code, _, err = run("report", trace_folder, "--models", "global_median", "-o", trace_folder / "jobs.parquet")
    assert code == 2
    assert "choose another place" in err
    assert Trace.read(trace_folder).jobs.height == 400


def test_new_jobs_are_predicted_from_the_past_of_the_training_log(run, tmp_path):
    log, new = tmp_path / "log.csv", tmp_path / "new.csv"
    jobs = [(1, 10, "a"), (2, 10, "a"), (3, 7000, "b"), (4, 7000, "b"), (5, 90, "c")]
    rows = [f"{day},2024-01-{day:02d} 00:00:00,{seconds},1,{user}" for day, seconds, user in jobs]
    log.write_text("\n".join(["job_id,submit_time,duration_s,num_gpus,user", *rows]))
    new.write_text("job_id,submit_time,num_gpus,user\n6,2024-02-01 00:00:00,1,a\n7,2024-02-01 00:00:00,1,b\n")
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "T")[0] == 0
    assert run("train", tmp_path / "T", "--model", "user_median", "-o", tmp_path / "M")[0] == 0
    assert run("predict", tmp_path / "M", new, "-o", tmp_path / "p.csv")[0] == 0
    assert pl.read_csv(tmp_path / "p.csv")["predicted_duration_s"].to_list() == [10.0, 7000.0]


def test_two_models_of_one_name_do_not_replace_each_other(run, trace_folder, tmp_path):
    for folder, model in (("a", "user_median"), ("b", "global_median")):
        assert run("train", trace_folder, "--model", model, "-o", tmp_path / folder / "M")[0] == 0
    given = f"{tmp_path / 'a' / 'M'},{tmp_path / 'b' / 'M'}"
    code, _, err = run("replay", trace_folder, "--policy", "sjf", "--predictor", given, "-o", tmp_path / "R")
    assert code == 2
    assert "'M' is the name of more than one" in err
    assert not (tmp_path / "R").exists()


def test_a_replay_says_that_its_model_saw_the_jobs_and_that_the_oracle_is_a_bound(run, trace_folder, tmp_path):
    submitted = Trace.read(trace_folder).jobs["submit_time"]
    cutoff = submitted[100]
    num_before = int((submitted < cutoff).sum())
    words = ["--model", "user_median", "--until", cutoff.isoformat(), "-o", tmp_path / "M"]
    assert run("train", trace_folder, *words)[0] == 0
    given = ["--policy", "fifo,sjf", "--predictor", f"oracle,{tmp_path / 'M'}", "-o", tmp_path / "R"]
    out = run("replay", trace_folder, *given)[1]
    assert f"and {num_before} of the 400 jobs here lie in that time" in out
    assert "Under the oracle (sjf) every true duration" in out
    out = run("replay", trace_folder, "--policy", "fifo", "-o", tmp_path / "R")[1]
    assert "oracle" not in out
    assert "lie in that time" not in out


def test_a_replay_says_why_jobs_were_not_replayed(run, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text(
        "job_id,submit_time,duration_s,num_gpus\n1,2024-01-01 00:00:00,60,1\n"
        "2,2024-01-01 00:00:00,,1\n3,2024-01-01 00:00:00,60,64\n4,2024-01-01 00:00:00,,1\n"
    )
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "T")[0] == 0
    out = run("replay", tmp_path / "T", "--policy", "fifo", "--cluster", "1x8", "-o", tmp_path / "R")[1]
    assert "3 of 4 GPU jobs were not replayed and are in no mean: unknown_duration 2, " in out


@pytest.mark.parametrize("rows", ["", "1,2024-01-01 00:00:00,60,0,4\n2,2024-01-02 00:00:00,60,0,4\n"])
def test_a_log_that_shows_no_gpu_gets_its_report(run, tmp_path, rows):
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_time,duration_s,num_gpus,num_cpus\n" + rows)
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "T")[0] == 0
    code, out, _ = run("report", tmp_path / "T", "-o", tmp_path / "r.html")
    assert code == 0
    assert "note: No replay and no comparison of policies" in out
    assert "No replay and no comparison of policies" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_report_says_whose_cluster_it_is_and_which_jobs_are_compared(run, trace_folder, tmp_path):
    pages = []
    for words in ([], ["--cluster", "3x8", "--no-vc"]):
        given = ["--models", "global_median,user_median", *words, "-o", tmp_path / "r.html"]
        assert run("report", trace_folder, *given)[0] == 0
        pages.append((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "On its own cluster" in pages[0]
    assert "On the cluster given" in pages[1]
    assert "On its own cluster" not in pages[1]
    assert "The comparison replays the 160 jobs on which predictors were tested" in pages[0]
    for title in ("Predictor scores", "Do predicted quantiles hold"):
        assert f'aria-label="{title}"' in pages[0]


@pytest.mark.parametrize("hours", [0.055, 3.0, 3.4, 80.0, 29_000.0])
def test_a_log_of_any_length_is_drawn_without_a_warning(run, tmp_path, hours):
    from datetime import datetime, timedelta

    first = datetime(2024, 1, 1)
    last = first + timedelta(hours=hours)
    log = tmp_path / "log.csv"
    log.write_text(f"job_id,submit_time,duration_s,num_gpus\n1,{first},60,1\n2,{last:%Y-%m-%d %H:%M:%S},60,2\n")
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "T")[0] == 0
    code, out, err = run("characterize", tmp_path / "T", "-o", tmp_path / "C")
    assert code == 0
    assert "Warning" not in err
    # One fact a line, none cut short.
    assert "…" not in out
    assert "num_gpu_jobs" in out


def test_a_backtest_of_cpu_jobs_and_of_one_job(run, tmp_path):
    log = tmp_path / "log.csv"
    rows = [f"{day},2024-01-{day:02d} 00:00:00,{60 * day},0,4" for day in range(1, 11)]
    log.write_text("\n".join(["job_id,submit_time,duration_s,num_gpus,num_cpus", *rows]))
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "T")[0] == 0
    words = ["--models", "global_median", "-o", tmp_path / "B"]
    code, _, err = run("backtest", tmp_path / "T", *words)
    assert code == 2
    assert "--cpu-jobs" in err
    assert run("backtest", tmp_path / "T", "--cpu-jobs", *words)[0] == 0
    log.write_text("job_id,submit_time,duration_s,num_gpus\n1,2024-01-01 00:00:00,60,1\n")
    assert run("load", "table", log, "--timezone", "UTC", "-o", tmp_path / "One")[0] == 0
    code, _, err = run("backtest", tmp_path / "One", *words)
    assert code == 2
    assert "nothing to learn from" in err


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(run, trace_folder, tmp_path, monkeypatch):
    assert run("train", trace_folder, "--model", "global_median", "-o", tmp_path / "M")[0] == 0
    (tmp_path / "folder.csv").mkdir()
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    for target, why in (("folder.csv", "it is a folder"), ("nowhere/p.csv", "No such file")):
        for words in (["check", trace_folder, "--json", target], ["predict", "M", trace_folder, "-o", target]):
            code, _, err = run(*words)
            assert code == 2
            assert err.startswith(f"hindcast: {target}: cannot be written ({why}")
    assert sorted(tmp_path.iterdir()) == before
