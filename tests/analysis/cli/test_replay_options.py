"""``hindcast replay``: options of policies, seed, limits; ``hindcast policies``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import polars as pl
import pytest

from analysis import replay as replaying
from analysis.cli import main
from analysis.cli.policy_options import form_of, option_types, text_of, with_options
from analysis.errors import UsageError
from analysis.replay import PLACEMENTS, POLICIES, Cluster, policy
from analysis.trace import Trace

pytestmark = pytest.mark.usefixtures("capsys")


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Any:
    folder = tmp_path_factory.mktemp("options") / "T"
    assert main(["synth", "--like", "venus", "--jobs", "400", "--seed", "1", "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def run(capsys):
    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def schedule_of(folder: Any, label: str) -> pl.DataFrame:
    return pl.read_parquet(folder / "schedules" / f"{label}.parquet")


# --- how options are read --------------------------------------------------------------------------------------------


def options_from(*texts: str, asked: tuple[str, ...] = ("las", "srtf", "gittins")) -> dict[str, dict[str, Any]]:
    found = with_options(texts, policies=asked, registry=POLICIES)
    return {name: dict(one.options) for name, one in found.items()}


def test_values_are_read_by_the_type_of_the_option():
    found = options_from(
        "las.thresholds_gpu_s=3600, 14400",
        "las.min_run_s=1e3",
        "srtf.checkpoint_overhead_s=7",
        "srtf.restart_cost_s=1:7,8:30,inf:60",
        "gittins.service_gpu_s=none",
    )
    assert found["las"] == {"thresholds_gpu_s": (3600.0, 14400.0), "min_run_s": 1000.0}
    sizes = ((1.0, 7.0), (8.0, 30.0), (math.inf, 60.0))
    assert found["srtf"] == {"checkpoint_overhead_s": 7.0, "restart_cost_s": sizes}
    assert found["gittins"] == {"service_gpu_s": None}


@pytest.mark.parametrize("name", POLICIES)
def test_every_default_can_be_written_and_is_read_as_it_was(name: str):
    from inspect import signature

    parameters = signature(POLICIES[name].key).parameters
    assert list(option_types(POLICIES[name])) == list(parameters)
    for option, parameter in parameters.items():
        found = options_from(f"{name}.{option}={text_of(parameter.default)}", asked=(name,))
        assert found[name] == {option: parameter.default}
        annotation = option_types(POLICIES[name])[option]
        assert annotation is str or "text" not in form_of(annotation), "a type that the command line cannot read"


def test_a_policy_of_ones_own_may_have_other_types():
    @policy(trait="skip")
    def mine(
        *,
        most: int = 3,
        is_on: bool = True,
        word: str = "a",
        one_of: Literal["x", "y"] = "x",
        shares: Mapping[str, float] | None = None,
    ) -> pl.Expr:
        """Mine."""
        weight = len(word) + len(one_of) + sum((shares or {}).values())
        return pl.col("num_gpus") * most * is_on + weight

    try:
        texts = ("mine.most=4", "mine.is_on=no", "mine.word=b=c", "mine.one_of=y", "mine.shares=ann:2,b:ob:0.5")
        expected = {"most": 4, "is_on": False, "word": "b=c", "one_of": "y", "shares": {"ann": 2.0, "b:ob": 0.5}}
        assert options_from(*texts, asked=("mine",)) == {"mine": expected}
        assert text_of(expected["shares"]) == "ann:2,b:ob:0.5"
        wrong = ("mine.most=4.5", "mine.is_on=perhaps", "mine.one_of=z", "mine.shares=ann")
        with pytest.raises(UsageError) as caught:
            options_from(*wrong, asked=("mine",))
    finally:
        del POLICIES["mine"]
    for text in (
        "found '4.5', expected whole number",
        "found 'perhaps', expected true or false",
        "expected x or y",
        "found 'ann', expected name:number,name:number,… or none",
    ):
        assert text in str(caught.value)


def test_all_that_is_wrong_is_said_at_once():
    texts = (
        "las.threshold=1",
        "las.min_run_s=soon",
        "srtf.restart_cost_s=1:2:3",
        "tiresias.min_run_s=1",
        "recorded.x=1",
        "las",
        "las.min_run_s=1",
        "las.min_run_s=2",
        "gittins.thresholds_gpu_s=5,4",
    )
    with pytest.raises(UsageError) as caught:
        options_from(*texts)
    for expected in (
        "'las' has no option 'threshold' (known: thresholds_gpu_s, checkpoint_overhead_s, restart_cost_s, min_run_s)",
        "found 'soon', expected number",
        "found '1:2:3', expected number or number:number,number:number,…",
        "'tiresias' is not asked for with --policy (asked for: las, srtf, gittins)",
        "'recorded' is no policy with options",
        "found 'las', which is not POLICY.NAME=VALUE",
        "las.min_run_s is given twice",
        "thresholds of attained service are (5.0, 4.0)",
        "e.g. --option las.thresholds_gpu_s=3600,14400; 'hindcast policies' lists all.",
    ):
        assert expected in str(caught.value)


# --- the command -----------------------------------------------------------------------------------------------------


def test_an_option_reaches_the_policy_and_the_metrics(trace, run, tmp_path):
    words = ["--policy", "fifo,las_skip", "--cluster", "6x8", "--option", "las_skip.thresholds_gpu_s=60,600"]
    code, out, err = run("replay", trace, *words, "--no-figures", "-o", tmp_path / "R", "--json", "-")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["options"] for row in rows] == [None, "thresholds_gpu_s=60,600"]
    jobs, site = Trace.read(trace).jobs, Cluster.uniform(num_nodes=6, num_gpus=8)
    chosen = POLICIES["las_skip"].using(thresholds_gpu_s=(60.0, 600.0))
    expected = replaying.replay(jobs, cluster=site, policy=chosen).schedule
    assert schedule_of(tmp_path / "R", "las_skip").equals(expected)
    assert not expected.equals(replaying.replay(jobs, cluster=site, policy="las_skip").schedule)


def test_an_unknown_option_is_a_wrong_usage(trace, run, tmp_path):
    code, _, err = run(
        "replay", trace, "--policy", "las", "--option", "las.speed=3", "--no-figures", "-o", tmp_path / "R"
    )
    assert code == 2
    assert "known: thresholds_gpu_s" in err
    assert not (tmp_path / "R").exists()


def test_the_seed_is_that_of_random_placement(trace, run, tmp_path):
    nodes = {}
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        words = ["--policy", "fifo", "--placement", "random", "--cluster", "6x8", "--seed", seed]
        assert run("replay", trace, *words, "--no-figures", "-o", tmp_path / name)[0] == 0
        nodes[name] = schedule_of(tmp_path / name, "fifo")["nodes"].to_list()
    assert nodes["a"] == nodes["c"]
    assert nodes["a"] != nodes["b"]


def test_limits_end_jobs_only_if_that_is_asked_for(trace, run, tmp_path):
    given = Trace.read(trace)
    limited = given.jobs.with_columns(time_limit_s=pl.lit(60.0))
    Trace(limited, meta=given.meta).write(tmp_path / "T")
    words = ["replay", tmp_path / "T", "--policy", "recorded,fifo,helios_fifo", "--cluster", "40x8"]
    for name, more in (("on", ["--enforce-limits"]), ("off", [])):
        code, out, err = run(*words, *more, "--no-figures", "-o", tmp_path / name)
        assert code == 0, err
        schedule = schedule_of(tmp_path / name, "fifo").filter(pl.col("state") == "finished")
        longest = (schedule["end_s"] - schedule["start_s"]).max()
        assert (longest <= 60.001) == (name == "on")
        num_killed = int((schedule["reason"] == "timeout").sum())
        assert (num_killed > 0) == (name == "on")
        assert (f"(reason timeout, state finished): fifo {num_killed:,}." in out) == (name == "on")


def test_nodes_fail_and_jobs_go_on_from_their_checkpoints(trace, run, tmp_path):
    """Under compiled policies and in Python, beside the log's own schedule; every failure is drawn from the seed."""
    words = ["replay", trace, "--policy", "recorded,fifo,fair_share", "--cluster", "6x8", "--events", "--no-figures"]
    words += ["--mtbf", 100, "--mttr", 0.5, "--seed", 3]
    wasted = {}
    for name, more in (("a", []), ("b", ["--checkpoint-interval", 60])):
        code, out, err = run(*words, *more, "-o", tmp_path / name)
        assert code == 0, err
        wasted[name] = schedule_of(tmp_path / name, "fifo")["wasted_gpu_s"].sum()
    jobs, site = Trace.read(trace).jobs, Cluster.uniform(num_nodes=6, num_gpus=8)
    first, last, longest = jobs["submit_time"].min(), jobs["submit_time"].max(), jobs["duration_s"].max()
    until = last + max(last - first, timedelta(seconds=longest))
    failed = site.with_failures(mtbf_s=360_000.0, mttr_s=1800.0, seed=3, since=first, until=until)
    drawn = f"{failed.outages.height:,} failures of nodes were drawn (seed 3)"
    assert f"{drawn}: one after 100 h, repaired after 0.5 h, in the mean" in out
    for name in ("fifo", "fair_share"):
        expected = replaying.replay(jobs, cluster=failed, policy=name, checkpoint_interval_s=60).schedule
        assert schedule_of(tmp_path / "b", name).equals(expected)
        events = pl.read_parquet(tmp_path / "b" / "events" / f"{name}.parquet")["event"]
        assert (events == "killed").sum() == expected["num_restarts"].sum() > 0
    assert 0 < wasted["b"] < wasted["a"]
    own = replaying.recorded(jobs, cluster=site, attempts=Trace.read(trace).attempts).schedule
    assert schedule_of(tmp_path / "b", "recorded").equals(own)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--mtbf", 100], "found one without the other"),
        (["--mtbf", 0, "--mttr", 1], "mtbf_s is 0.0, not a number above 0"),
        (["--mtbf", 9, "--mttr", 1, "--policy", "helios_fifo"], "helios_fifo knows no nodes that fail"),
        (["--checkpoint-interval", -1], "checkpoint_interval_s is -1.0; expected seconds"),
    ],
)
def test_failures_that_make_no_sense_are_wrong_usage(trace, run, tmp_path, words, expected):
    code, _, err = run("replay", trace, "--cluster", "6x8", *words, "--no-figures", "-o", tmp_path / "R")
    assert code == 2
    assert expected in err.replace("\n", " ")
    assert not (tmp_path / "R").exists()


def test_heliosartifacts_rules_are_policies_of_the_command(trace, run, tmp_path):
    words = ["--policy", "helios_srtf,sjf", "--placement", "consolidate,first_fit", "--cluster", "6x8", "--no-vc"]
    code, out, err = run("replay", trace, *words, "--no-figures", "-o", tmp_path / "R", "--json", "-")
    assert code == 0, err
    labels = ["helios_srtf__oracle__helios", "sjf__oracle__consolidate", "sjf__oracle__first_fit"]
    assert [row["schedule"] for row in json.loads(out)] == labels
    jobs, site = Trace.read(trace).jobs, Cluster.uniform(num_nodes=6, num_gpus=8)
    expected = replaying.helios_artifact(jobs, cluster=site, policy="srtf", use_vcs=False).schedule
    assert schedule_of(tmp_path / "R", labels[0]).equals(expected)


def test_policies_are_listed_with_their_options(run):
    code, out, _ = run("policies", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert [row["policy"] for row in found["policies"]] == list(POLICIES)
    assert [row["placement"] for row in found["placements"]] == list(PLACEMENTS)
    las = next(row for row in found["policies"] if row["policy"] == "las")
    assert (las["trait"], las["preempts"], las["uses_predictions"]) == ("strict", True, False)
    assert las["options"][0] == {"name": "thresholds_gpu_s", "default": [14400.0], "form": "number,number,…"}
    edf = next(row for row in found["policies"] if row["policy"] == "edf")
    assert edf["reads_if_there"] == ["deadline_time"]
    code, out, _ = run("policies")
    assert code == 0
    assert "las.thresholds_gpu_s" in out
    assert "helios_srtf" in out
    assert all(row["meaning"] in out for row in found["policies"])


# --- predictions in closed loop --------------------------------------------------------------------------------------


def test_rolling_predicts_in_the_replay_and_again_with_refresh(trace: Any, run, tmp_path):
    """The command's schedules are those of the library; each is named by its predictor."""
    words = ("replay", trace, "--policy", "srtf_skip,sjf", "--cluster", "2x8", "--no-vc", "--no-figures")
    code, out, err = run(
        *words, "--predictor", "oracle,rolling", "--refresh", "0.5", "-o", tmp_path / "a", "--json", "-"
    )
    assert code == 0, err
    rows = {row["schedule"]: row for row in json.loads(out)}
    again = "rolling_median_20(vc+num_gpus, vc, all) every 1800 s"
    assert {label: row["predictor"] for label, row in rows.items()} == {
        f"{order}__{name}__consolidate": told
        for order in ("srtf_skip", "sjf")
        for name, told in (("oracle", None), ("rolling", again))
    }
    jobs, how = Trace.read(trace).jobs, {"cluster": Cluster.uniform(num_nodes=2, num_gpus=8), "use_vcs": False}
    for order in ("srtf_skip", "sjf"):
        predicted = replaying.RollingPrediction(refresh_s=1800.0)
        expected = replaying.replay(jobs, policy=order, predicted=predicted, **how).schedule
        found = schedule_of(tmp_path / "a", f"{order}__rolling__consolidate")
        assert found["start_time"].to_list() == expected["start_time"].to_list()
    assert run(*words, "--predictor", "rolling", "-o", tmp_path / "b")[0] == 0
    once = replaying.replay(jobs, policy="sjf", predicted=replaying.RollingPrediction(), **how).schedule
    assert schedule_of(tmp_path / "b", "sjf")["start_time"].to_list() == once["start_time"].to_list()
    assert once["start_time"].to_list() != found["start_time"].to_list()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--refresh", "1"), "--refresh: only predictor 'rolling' predicts again; found --predictor oracle"),
        (("--predictor", "rolling", "--refresh", "0"), "--refresh 0.0: expected hours, above 0"),
        (("--predictor", "rolling", "--policy", "helios_sjf"), "take no predictions in closed loop; found --predictor"),
        (("--predictor", "rolling", "--policy", "sjf_fastest"), "cannot have predictions in closed loop"),
    ],
)
def test_what_cannot_be_refreshed_is_refused(trace: Any, run, tmp_path, words: tuple[str, ...], said: str):
    code, _, err = run("replay", trace, "--cluster", "2x8", *words, "-o", tmp_path / "r")
    assert code == 2
    assert said in " ".join(err.split())
    assert not (tmp_path / "r").exists()
