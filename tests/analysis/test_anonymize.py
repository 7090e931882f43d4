"""Anonymized traces: no name survives anywhere, and everything that analysis needs does."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import schema
from analysis.anonymize import HASHED, anonymize, shift_of
from analysis.cli import main
from analysis.errors import BadFileError, UnknownNameError, UsageError
from analysis.loaders.synthetic import synthesize
from analysis.pseudonyms import hash_names, hash_values, obtain_key
from analysis.replay import Cluster, replay
from analysis.trace import LoadReport, Trace, TraceMeta
from predictors.history import key_columns
from tests.jobs import make_jobs

KEY = b"0123456789abcdef-secret-of-the-site"
T0 = datetime(2026, 3, 2, 8, tzinfo=UTC)  # a Monday

#: Every string of the trace below that a site would not want to be seen.
SECRETS = (
    "alice.smith",
    "bobby",
    "genomics",
    "protein",
    "visionlab",
    "gpulong",
    "Helsinki-Cluster",
    "foldprotein",
    "ResNetSecret",
    "nightlyrun",
    "recurring-7781",
    "secretclass",
    "node-a17",
    "node-b3",
    "slurm-0815-41",
    "slurm-0815-42",
    "CANCELLED by 100234",
    "100234",
    "/home/alice.smith/work",
    "mailtype",
    "weird-state-of-bobby",
    "siteword",
    "accounting_2026.csv",
    "quoted row of alice",
)


def site_trace():
    """A small log in which every place that can hold a name does."""
    rows = [
        {
            "job_id": "slurm-0815-41",
            "cluster": "Helsinki-Cluster",
            "user": "alice.smith",
            "account": "genomics",
            "vc": "gpulong",
            "job_name": "foldprotein-17",
            "group": "recurring-7781",
            "workload": "secretclass",
            "submit_time": T0,
            "start_time": T0 + timedelta(minutes=5),
            "end_time": T0 + timedelta(minutes=65),
            "duration_s": 3600.0,
            "queueing_delay_s": 300.0,
            "num_gpus": 4.0,
            "gpu_type": "V100",
            "status": "cancelled",
            "status_raw": "CANCELLED by 100234",
            "num_attempts": 1,
        },
        {
            "job_id": "slurm-0815-42",
            "cluster": "Helsinki-Cluster",
            "user": "bobby",
            # The account has the name of a user, and the group that of an account.
            "account": "alice.smith",
            "vc": "visionlab",
            "job_name": "nightlyrun_ResNetSecret.sh",
            "group": "genomics",
            "submit_time": T0,
            "num_gpus": 1.0,
            "status": "unknown",
            "status_raw": "weird-state-of-bobby",
            "flags": ["unknown_status"],
            "censoring": "never_started",
        },
    ]
    jobs = make_jobs(rows)
    extra = pl.Series("extra", [{"WorkDir": "/home/alice.smith/work", "mail": "mailtype"}, None])
    nodes = pl.DataFrame(
        [
            ("node-a17", "V100", 8, 64.0, 512.0, "gpulong", None, None),
            ("node-b3", "T4", 4, 32.0, 128.0, "visionlab", T0, None),
        ],
        schema=schema.NODES,
        orient="row",
    )
    capacity = pl.DataFrame([("gpulong", T0, 8.0), ("visionlab", T0, 4.0)], schema=schema.CAPACITY, orient="row")
    attempts = pl.DataFrame(
        [
            ("slurm-0815-41", 1, T0, T0 + timedelta(hours=1), ["node-a17", "node-b3"], 4.0),
            ("slurm-0815-42", 1, None, None, None, 1.0),
        ],
        schema=schema.ATTEMPTS,
        orient="row",
    )
    usage = pl.DataFrame([{"job_id": "slurm-0815-41", "gpu_utilization_mean": 0.5}], schema=schema.USAGE)
    series = pl.DataFrame(
        [(who, T0, "gpu_util", 0.5) for who in ("node-a17", "node-a17-3", "slurm-0815-41", "siteword")],
        schema=schema.USAGE_SERIES,
        orient="row",
    )
    rejects = pl.DataFrame(
        [("accounting_2026.csv", 7, "no_job_id", "quoted row of alice")], schema=schema.REJECTS, orient="row"
    )
    report = LoadReport(
        rows_in=3,
        rows_used=2,
        rows_set_aside=1,
        num_jobs=2,
        rejected_by_reason={"no_job_id": 1, "not a time: siteword": 0},
        flagged={"unknown_status": 1},
        unknown_statuses={"weird-state-of-bobby": 1},
        files=[{"name": "/home/alice.smith/work/accounting_2026.csv", "size": 999, "rows": 3}],
        notes=["The partition gpulong of /home/alice.smith/work is taken as the VC."],
    )
    meta = TraceMeta(
        name="Helsinki-Cluster",
        source="/home/alice.smith/work",
        citation="alice.smith, genomics",
        time_zone="Europe/Helsinki",
        time_zone_certainty="given",
        window=(T0.isoformat(), None),
        coverage="all jobs of visionlab",
        load_report=report,
    )
    tables = {
        "nodes": nodes,
        "capacity": capacity,
        "attempts": attempts,
        "usage": usage,
        "usage_series": series,
        "rejects": rejects,
    }
    return Trace(jobs.with_columns(extra), meta=meta, tables=tables)


def all_text(folder):
    """Everything that can be read in a folder: the bytes of its files, and what is in its Parquet files, unpacked."""
    texts = [str(folder.name)]
    for path in sorted(folder.rglob("*")):
        texts += [path.name, path.read_bytes().decode("latin-1")]
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            texts += [str(file.metadata.metadata), str(file.schema), json.dumps(file.read().to_pylist(), default=str)]
            texts += [
                f"{column.statistics.min} {column.statistics.max}"
                for group in range(file.metadata.num_row_groups)
                for column in map(file.metadata.row_group(group).column, range(file.metadata.num_columns))
                if column.statistics is not None and column.statistics.has_min_max
            ]
    return "\n".join(texts)


def test_no_name_is_left_anywhere_in_the_folder(tmp_path):
    trace = site_trace()
    before = all_text(trace.write(tmp_path / "before"))
    assert [secret for secret in SECRETS if secret not in before] == []
    result = anonymize(trace, key=KEY)
    after = all_text(result.write(tmp_path / "after")).lower()
    assert [secret for secret in SECRETS if secret.lower() in after] == []
    assert KEY.decode() not in after


def test_the_rest_is_as_it_was():
    trace = site_trace()
    result = anonymize(trace, key=KEY)
    touched = {*HASHED, "job_id", "extra", "status_raw"}
    same = [column for column in schema.JOBS if column not in touched]
    assert result.jobs.select(same).equals(trace.jobs.select(same))
    for name, column in (("capacity", "num_gpus"), ("nodes", "mem_gib"), ("usage_series", "value")):
        assert result.table(name)[column].equals(trace.table(name)[column])
    assert result.rejects.height == 0
    report = result.meta.load_report
    assert (report.rows_in, report.rows_set_aside) == (3, 1)
    assert report.rejected_by_reason == {"no_job_id": 1, "other": 0}
    assert report.unknown_statuses == {"unknown": 1}
    assert report.files == [{"name": "file 1", "size": 999, "rows": 3}]
    assert result.meta.time_zone == "Europe/Helsinki"


def test_equal_values_stay_equal_across_tables_and_unlike_ones_apart():
    result = anonymize(site_trace(), key=KEY)
    jobs = result.jobs
    assert jobs["vc"].to_list() == result.nodes["vc"].to_list() == result.capacity["vc"].to_list()
    assert jobs["vc"].n_unique() == 2
    assert jobs["cluster"].n_unique() == 1
    assert jobs["job_id"].to_list() == result.attempts["job_id"].to_list() == ["1", "2"]
    assert result.usage["job_id"].to_list() == ["1"]
    nodes = result.nodes["node_id"].to_list()
    assert result.attempts["nodes"].to_list() == [nodes, None]
    assert result.table("usage_series")["entity"].to_list()[:3] == [nodes[0], f"{nodes[0]}-3", "1"]
    # A user and an account of one name have nothing in common.
    assert jobs["user"][0].removeprefix("u_") != jobs["account"][1].removeprefix("a_")
    # Null stays null.
    assert jobs["workload"].to_list()[1] is None


def test_a_long_series_goes_from_file_to_file(monkeypatch, tmp_path):
    trace = Trace.read(site_trace().write(tmp_path / "before"))
    expected = anonymize(trace, key=KEY, shift_days=7).table("usage_series")
    monkeypatch.setattr("analysis.anonymize.MAX_ROWS_IN_MEMORY", 3)
    folder = anonymize(trace, key=KEY, shift_days=7).write(tmp_path / "after")
    assert Trace.read(folder).table("usage_series").equals(expected)
    assert [secret for secret in SECRETS if secret.lower() in all_text(folder).lower()] == []


def test_the_key_decides_and_nothing_else():
    trace = site_trace()
    one, same, other = (anonymize(trace, key=key).jobs for key in (KEY, KEY, KEY + b"x"))
    assert one.equals(same)
    for column in ("user", "account", "vc", "job_name", "group", "cluster"):
        assert set(one[column]).isdisjoint(other[column])
    # The next month's log: other jobs, the same people.
    month = Trace(trace.jobs[1:], meta=trace.meta)
    assert anonymize(month, key=KEY).jobs["user"].to_list() == one["user"][1:].to_list()


@pytest.mark.parametrize("keep", [["vc"], ["vc", "workload"]])
def test_kept_columns_stay_readable_in_every_table(keep):
    trace = site_trace()
    result = anonymize(trace, key=KEY, keep=keep)
    assert result.jobs["vc"].equals(trace.jobs["vc"])
    assert result.nodes["vc"].equals(trace.nodes["vc"])
    assert result.capacity["vc"].equals(trace.capacity["vc"])
    assert result.jobs["workload"].equals(trace.jobs["workload"]) == ("workload" in keep)
    assert set(result.jobs["user"]).isdisjoint(trace.jobs["user"])
    with pytest.raises(UnknownNameError, match="no hashed column to keep is named 'job_id'"):
        anonymize(trace, key=KEY, keep=["job_id"])


def test_families_of_names_survive():
    names = [
        *("train-17", "train-18", "Train-17", "TRAIN_17", "trAin-17", "train-017"),
        *("train-resnet50-3fa9c1d2e", "train-resnet50-0123456789ab", "resnet50_train", "eval/resnet101"),
        *("", "---", "42", "deadbeefcafe", "Ünïcode-7", "\u212a1", "K1", "k1", "名前-3", "a b c", "x" * 500),
    ]
    hashed = hash_names(names, key=KEY)
    assert len(set(hashed.values())) == len(names)
    frame = pl.DataFrame({"job_name": names, "hashed": [hashed[name] for name in names]})
    frame = frame.filter(pl.col("job_name").str.contains(r"^[ -~]*$"))
    family = key_columns()["job_family"]
    pairs = frame.select(
        before=family, after=pl.col("hashed").str.to_lowercase().str.replace_all(r"[0-9a-f]{8,}|[0-9]+", "#")
    ).unique()
    assert pairs["before"].n_unique() == pairs["after"].n_unique() == pairs.height
    assert hashed["train-17"].split("-")[0] == hashed["train-18"].split("-")[0]
    assert hashed["train-17"].upper().split("-")[0] == hashed["TRAIN_17"].split("_")[0]


ascii_names = st.text(st.sampled_from("abAB01f-_ /é"), max_size=12)


@given(names=st.sets(ascii_names, max_size=30))
@settings(max_examples=150, deadline=None)
def test_hashing_never_merges_and_never_splits_a_family(names):
    hashed = hash_names(sorted(names), key=KEY)
    assert len(set(hashed.values())) == len(names)
    frame = pl.DataFrame({"old": list(hashed), "new": list(hashed.values())}, schema={"old": str, "new": str})
    frame = frame.with_columns(pl.all().str.to_lowercase().str.replace_all(r"[0-9a-f]{8,}|[0-9]+", "#")).unique()
    assert frame["old"].n_unique() == frame["new"].n_unique() == frame.height


def test_hashes_become_longer_when_two_are_alike():
    # One letter of an alphabet of two: four values cannot be told apart.
    hashes = hash_values(["a", "b", "c", "d"], key=KEY, kind="x", alphabet="gh", length=1)
    assert len(set(hashes.values())) == 4
    assert len({len(value) for value in hashes.values()}) == 1


def test_a_replay_of_the_anonymous_trace_is_the_same():
    trace = synthesize(like="venus", num_jobs=1500, seed=3)
    result = anonymize(trace, key=KEY, shift_days=-364)
    for policy in ("fifo", "easy"):
        before = replay(trace.jobs, cluster=Cluster(trace.nodes), policy=policy).schedule
        after = replay(result.jobs, cluster=Cluster(result.nodes), policy=policy).schedule
        ids = dict(zip(trace.jobs["job_id"], result.jobs["job_id"], strict=True))
        nodes = dict(zip(trace.nodes["node_id"], result.nodes["node_id"], strict=True))
        expected = before.with_columns(
            pl.col("job_id").replace_strict(ids),
            pl.col("nodes").list.eval(pl.element().replace_strict(nodes, return_dtype=pl.String)),
            pl.selectors.datetime() - timedelta(days=364),
        )
        assert after.sort("job_id").equals(expected.sort("job_id").select(after.columns))
        assert before["nodes"].list.len().sum() > 1000


def test_the_trace_in_which_every_name_is_asked_for(tmp_path):
    # Not hand-made: every value of a synthetic trace's names, and every word of them, is gone.
    trace = synthesize(like="philly", num_jobs=400, seed=1)
    text = all_text(anonymize(trace, key=KEY).write(tmp_path / "out"))
    values = {v for c in ("user", "vc", "job_name", "group", "cluster") for v in trace.jobs[c].drop_nulls()}
    values |= set(trace.nodes["node_id"]) | set(trace.jobs["job_id"].filter(trace.jobs["job_id"].str.len_chars() > 4))
    long = {value for value in values if len(value) > 3}
    assert len(long) > 100
    assert [value for value in long if value in text] == []


@pytest.mark.parametrize("days", [7, -364, 3640])
def test_shifted_times_keep_hour_weekday_and_differences(days):
    trace = site_trace()
    result = anonymize(trace, key=KEY, shift_days=days)
    for column in ("submit_time", "start_time", "end_time"):
        moved = result.jobs[column] - trace.jobs[column]
        assert set(moved.drop_nulls()) == {timedelta(days=days)}
        assert result.jobs[column].dt.weekday().equals(trace.jobs[column].dt.weekday())
        assert result.jobs[column].dt.hour().equals(trace.jobs[column].dt.hour())
    assert result.capacity["time"][0] == result.nodes["available_from"][1] == T0 + timedelta(days=days)
    assert result.attempts["start_time"][0] == T0 + timedelta(days=days)
    assert result.meta.window == ((T0 + timedelta(days=days)).isoformat(), None)
    assert result.meta.clock == "clock_only"


def test_a_random_shift_comes_of_the_key_and_keeps_the_season():
    days = {shift_of("random", key=bytes([i]) * 16) for i in range(60)}
    assert len(days) > 10
    assert all(day % 364 == 0 and -7280 <= day <= -364 for day in days)
    assert shift_of("random", key=KEY) == shift_of("random", key=KEY)
    # In a zone with clock changes the local hour stays too, but for the days between the old and the new change.
    helsinki = ZoneInfo("Europe/Helsinki")
    for month in (1, 2, 5, 7, 9, 12):
        then = datetime(2026, month, 10, 12, tzinfo=UTC)
        assert all((then + timedelta(days=d)).astimezone(helsinki).hour == then.astimezone(helsinki).hour for d in days)


@pytest.mark.parametrize("text", ["1", "10", "-8", "soon", "7.0", "99999999999"])
def test_shifts_that_are_no_weeks_are_refused(text):
    with pytest.raises(UsageError, match="a multiple of 7 days"):
        shift_of(text, key=KEY)
    assert shift_of(None, key=KEY) == 0
    with pytest.raises(UsageError, match="multiple of 7"):
        anonymize(site_trace(), key=KEY, shift_days=3)


def test_the_key_file(tmp_path):
    out = tmp_path / "out"
    made = obtain_key(None, output=out)
    assert made.path == tmp_path / "out.key"
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert len(made.secret) == 64
    assert made.secret.decode() not in repr(made)
    assert obtain_key(made.path, output=out).secret == made.secret
    with pytest.raises(UsageError, match="a key is there already; use it with --key-file"):
        obtain_key(None, output=out)
    other = obtain_key(tmp_path / "new" / "other.key", output=out)
    assert other.secret != made.secret
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(BadFileError, match="found 6 bytes; expected 16 or more"):
        obtain_key(tmp_path / "short", output=out)
    with pytest.raises(UsageError, match="would be shared with the trace"):
        obtain_key(out / "key", output=out)
    with pytest.raises(UsageError, match="found a folder"):
        obtain_key(tmp_path, output=out / "deeper")


def test_the_command(tmp_path, capsys):
    site_trace().write(tmp_path / "mine")
    out = tmp_path / "shared"
    arguments = ["anonymize", str(tmp_path / "mine"), "-o", str(out), "--keep", "vc", "--shift-time", "random"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"{out}.key" in said
    assert "Left readable: vc." in said
    key = (tmp_path / "shared.key").read_text().strip()
    assert key not in said
    assert key not in all_text(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "shared", "shared.key"]
    result = Trace.read(out)
    assert result.jobs["vc"].to_list() == ["gpulong", "visionlab"]
    assert result.meta.name == "anonymous"
    # The same key again: the same trace, byte for byte.
    again = tmp_path / "again"
    assert main([*arguments[:3], str(again), *arguments[4:], "--key-file", f"{out}.key", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["num_jobs"] == 2
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {p.name: p.read_bytes() for p in out.iterdir()}


def test_the_command_leaves_nothing_when_it_fails(tmp_path, capsys):
    site_trace().write(tmp_path / "mine")
    start = ["anonymize", str(tmp_path / "mine"), "-o"]
    assert main([*start, str(tmp_path / "mine")]) == 2
    assert "is the trace itself" in capsys.readouterr().err
    assert main([*start, str(tmp_path / "out"), "--keep", "names"]) == 2
    assert main([*start, str(tmp_path / "out"), "--shift-time", "3"]) == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert main([*start, str(tmp_path / "full")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "mine"]


def test_an_empty_trace():
    empty = Trace(schema.empty_table("jobs"), meta=TraceMeta(name="nothing"))
    assert anonymize(empty, key=KEY, shift_days=7).jobs.height == 0
