"""Bad input at the command line: one sentence, the right exit code, nothing half-written, no traceback."""

from __future__ import annotations

import gzip
import json

import pytest

from analysis.cli import main
from analysis.loaders.synthetic import synthesize

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ROW = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"


@pytest.fixture(scope="module")
def trace_folder(tmp_path_factory):
    return synthesize(like="venus", num_jobs=400, seed=3).write(tmp_path_factory.mktemp("cli") / "T")


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def lfs_pointer(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")


def truncated_gzip(path):
    path.write_bytes(gzip.compress((HEADER + ROW * 5000).encode())[:-40])


def wrong_columns(path):
    path.write_text("when,how_long\n1,2\n")


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("missing.csv", None, ["missing.csv", "nothing there"]),
        ("pointer.csv", lfs_pointer, ["Git LFS", "12345"]),
        ("cut.csv.gz", truncated_gzip, ["breaks off"]),
        ("empty.csv", lambda path: path.touch(), ["empty"]),
        ("columns.csv", wrong_columns, ["when", "timestamp"]),
    ],
)
def test_a_bad_file_is_one_sentence_and_leaves_nothing(run, tmp_path, name, make, words):
    source = tmp_path / name
    if make:
        make(source)
    code, out, err = run("load", "sia_philly", source, "-o", tmp_path / "T")
    assert code == 1
    assert out == ""
    assert name in err
    for word in words:
        assert word.lower() in err.lower(), err
    assert [p.name for p in tmp_path.iterdir() if p.name != name] == []


def test_auto_says_what_each_loader_expects(run, tmp_path):
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    code, _, err = run("load", "auto", tmp_path / "odd.csv", "-o", tmp_path / "T")
    assert code in (1, 2)
    assert "sia_philly" in err
    assert "table" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["replay", "{T}", "--policy", "fifo,fiffo,nope", "-o", "{out}"],
            "'fiffo', 'nope' (known: conservative, easy, ",
        ),
        (["replay", "{T}", "--placement", "anywhere", "-o", "{out}"], "no placement is named 'anywhere'"),
        (["replay", "{T}", "--policy", ",", "-o", "{out}"], "found no name"),
        (["replay", "{T}", "--cluster", "huge", "-o", "{out}"], "NODESxGPUS"),
        (["replay", "{T}", "--cluster", "quotas", "-o", "{out}"], "no quotas to follow"),
        (["replay", "{T}", "--cluster", "4x0", "-o", "{out}"], "GPU"),
        (["load", "philly2", "x.csv", "-o", "{out}"], "'philly2'"),
        (["load", "table", "x.csv", "--option", "novalue", "-o", "{out}"], "KEY=VALUE"),
        (["synth", "--like", "venuz", "-o", "{out}"], "Did you mean 'venus'?"),
        (["backtest", "{T}", "--models", "magic", "-o", "{out}"], "'magic'"),
        (["train", "{T}", "--until", "yesterday", "-o", "{out}"], "not an ISO time"),
        (["frobnicate"], "frobnicate"),
        (["replay"], "Missing"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_known(run, tmp_path, trace_folder, words, message):
    filled = [word.format(T=trace_folder, out=tmp_path / "out") for word in words]
    code, _, err = run(*filled)
    assert code == 2, err
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_cluster_file_that_is_missing_or_has_no_gpus(run, tmp_path, trace_folder):
    code, _, err = run("replay", trace_folder, "--cluster", tmp_path / "none.toml", "-o", tmp_path / "out")
    assert code == 1
    assert "none.toml" in err
    (tmp_path / "cpu.toml").write_text('name = "cpu"\n[[nodes]]\ncount = 3\nnum_gpus = 0\n')
    code, _, err = run("replay", trace_folder, "--cluster", tmp_path / "cpu.toml", "-o", tmp_path / "out")
    assert code in (1, 2)
    assert "GPU" in err
    assert not (tmp_path / "out").exists()


def test_a_trace_written_by_a_newer_version_is_refused(run, tmp_path, trace_folder):
    import shutil

    folder = tmp_path / "newer"
    shutil.copytree(trace_folder, folder)
    header = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps(header | {"schema_version": 99}))
    code, _, err = run("check", folder)
    assert code == 1
    assert "schema version 99" in err
    assert "upgrade" in err


def test_output_that_is_something_else_is_not_touched(run, tmp_path):
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter1.tex").write_text("years")
    code, _, err = run("synth", "--like", "venus", "--jobs", "10", "-o", precious)
    assert code == 2
    assert "did not write" in err
    assert [p.name for p in precious.iterdir()] == ["chapter1.tex"]


def test_debug_shows_the_traceback(tmp_path):
    from analysis.errors import HindcastError

    with pytest.raises(HindcastError):
        main(["check", str(tmp_path / "nowhere"), "--debug"])
