"""The registry and "auto": third parties, unknown names, files that nobody knows."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.errors import BadFileError, UnknownNameError, UsageError
from analysis.loaders import LOADERS, finish_trace, load, loader
from analysis.loaders.delimited import has_columns, read_delimited
from analysis.trace import TraceMeta

SIA = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n"


@pytest.fixture
def third_party(monkeypatch):
    """A loader of another package, in the few lines that it takes."""
    monkeypatch.setattr("analysis.loaders.registry.LOADERS", LOADERS)
    before = dict(LOADERS)

    def sniff(paths):
        return float(any(has_columns(path, ("wat",)) for path in paths))

    @loader("mysite", summary="s", files="jobs.csv", sniff=sniff)
    def read_mysite(paths, *, timezone=None, name=None, loud=False):  # noqa: ARG001 - only their names matter here
        raw = read_delimited(paths[0], required=("wat",))
        return finish_trace(raw.frame.rename({"wat": "job_id"}), meta=TraceMeta(name=name or "mysite"), raws=[raw])

    yield
    LOADERS.clear()
    LOADERS.update(before)


@pytest.mark.usefixtures("third_party")
def test_a_third_party_registers_and_is_recognised(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("wat\n1\n2\n")
    trace = load("auto", path)
    assert trace.jobs["job_id"].to_list() == ["1", "2"]
    assert trace.meta.load_report.notes[0] == "auto: recognised as 'mysite' from the content (certainty 100%)."
    with pytest.raises(UnknownNameError, match=r"'loudly' \(known: loud, name, timezone\).*Did you mean 'loud'"):
        load("mysite", path, loudly=True)
    with pytest.raises(UsageError, match="registered already"):
        loader("mysite", summary="", files="", sniff=lambda _: 0.0)(lambda _: None)


@pytest.mark.usefixtures("third_party")
def test_two_that_are_equally_sure_are_both_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(SIA.replace("cluster\n", "cluster,wat\n").replace(",a\n", ",a,1\n"))
    with pytest.raises(UsageError, match="mysite and sia_philly are equally sure"):
        load("auto", path)


def test_an_unknown_loader_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"'heliso' \(known: .*helios.*Did you mean 'helios'.*'auto'"):
        load("heliso", "x")


def test_what_nobody_recognises_says_what_each_expects(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="no loader recognises x.csv") as caught:
        load("auto", path)
    assert all(f"\n  {name}: " in str(caught.value) for name, entry in LOADERS.items() if entry.takes_files)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 12345\n", "lfs_pointer"),
        (b"\x1f\x8b", "truncated"),
    ],
)
def test_a1_auto_says_why_a_file_is_no_data(tmp_path, data, kind):
    path = tmp_path / "trace-data.tar.gz"
    path.write_bytes(data)
    with pytest.raises(BadFileError) as caught:
        load("auto", path)
    assert caught.value.kind == kind


def test_missing_paths_and_empty_folders(tmp_path):
    with pytest.raises(BadFileError, match="nothing there"):
        load("auto", tmp_path / "no")
    with pytest.raises(BadFileError, match="without files"):
        load("sia_philly", tmp_path)
    with pytest.raises(UsageError, match="no file is given"):
        load("sia_philly", [])


def test_a_folder_gives_its_files_and_others_do_no_harm(tmp_path):
    (tmp_path / "jobs.csv").write_text(SIA)
    (tmp_path / "README.md").write_text("# about\n")
    (tmp_path / "figure.png").write_bytes(bytes(range(256)))
    assert load("auto", tmp_path).jobs.height == 1


def test_a_file_named_beside_the_right_one_must_be_known(tmp_path):
    (tmp_path / "jobs.csv").write_text(SIA)
    (tmp_path / "other.csv").write_text("a\n1\n")
    with pytest.raises(BadFileError, match=r"other\.csv: found nothing that looks like log"):
        load("sia_philly", [tmp_path / "jobs.csv", tmp_path / "other.csv"])


def test_an_unknown_zone_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UsageError, match="no time zone"):
        load("sia_philly", tmp_path / "no", timezone="Mars")


def test_every_loader_says_what_it_is():
    for entry in LOADERS.values():
        assert entry.summary
        assert entry.files or not entry.takes_files
        assert entry.sniff([]) == 0


def test_the_same_file_gives_the_same_bytes(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(SIA)
    one, other = (load("sia_philly", path).write(tmp_path / name) for name in ("one", "other"))
    for file in sorted(p.name for p in one.iterdir()):
        assert (one / file).read_bytes() == (other / file).read_bytes()
    assert pl.read_parquet(one / "jobs.parquet").height == 1
