"""The whole way from the catalog to a folder, from a server of our own, and the two commands."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from analysis.cli import main
from analysis.errors import BadFileError, UnknownNameError
from analysis.fetch import catalog, fetching
from analysis.fetch.download import DownloadLimits
from analysis.fetch.errors import ArchiveError, FetchError
from analysis.fetch.fetching import fetch, plan_fetch
from analysis.fetch.places import cache_folder, data_folders, default_target, find_data, find_file

pytestmark = pytest.mark.usefixtures("example", "nowhere")

NODES = b"node_id,num_gpus\nn1,8\n"
JOBS = b"job_id,num_gpus\n1,8\n"


def packed(name, content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def example(site, monkeypatch):
    """A catalog of one trace that lies on our server: a plain file, an archive, an optional one, one by hand."""
    archive = packed("data/jobs.csv", JOBS)
    site.put("/nodes.csv", NODES)
    site.put("/jobs.tar.gz", archive)
    site.put("/usage.csv", b"u\n1\n")
    text = f"""
    [example]
    title = "An example"
    licence = "CC-BY-4.0"
    citation = "Somebody, Some Paper, 2026"
    page = "https://example.invalid/page"
    loader = "table"
    num_jobs = 1
    base = "http://127.0.0.1:{site.port}/"
    files = [
      {{ name = "nodes.csv", size = {len(NODES)}, sha256 = "{sha(NODES)}" }},
      {{ name = "jobs.tar.gz", sha256 = "{sha(archive)}", about_bytes = 500, unpack = true,
         unpacked_sha256 = {{ "jobs.csv" = "{sha(JOBS)}" }} }},
      {{ name = "usage.csv", optional = true }},
    ]
    [manual]
    title = "By hand"
    licence = "unknown"
    citation = "C"
    page = "https://example.invalid/manual"
    files = [{{ name = "log.swf", lies_at = ["swf/log.swf"] }}]
    """.replace("true,\n         unpacked", "true, unpacked")
    known = catalog.parse_catalog(text)
    monkeypatch.setattr(catalog, "_own_catalog", lambda: known)
    return known["example"]


@pytest.fixture
def manual(example):  # noqa: ARG001 - it sets the catalog
    return catalog.traces()["manual"]


def test_a_trace_is_fetched_and_found(site, example, tmp_path):
    to = tmp_path / "data"
    plan = plan_fetch(example, to=to)
    assert plan.is_first
    assert [file.name for file in plan.missing] == ["nodes.csv", "jobs.tar.gz"]
    assert plan.num_bytes == len(NODES) + 500
    told = []
    places = fetch(plan, progress=lambda *seen: told.append(seen))
    assert places["nodes.csv"].read_bytes() == NODES
    assert (places["jobs.tar.gz"] / "data" / "jobs.csv").read_bytes() == JOBS
    assert {name for name, _, _ in told} == {"nodes.csv", "jobs.tar.gz"}
    # The archive is gone: a loader that is given the folder shall not see everything twice.
    assert sorted(p.name for p in (to / "example").iterdir()) == [".source.json", "jobs", "nodes.csv"]
    assert json.loads((to / "example" / ".source.json").read_text())["licence"] == "CC-BY-4.0"
    assert find_data("example", data=to) == list(places.values())
    assert find_data("example/nodes.csv", data=to) == [places["nodes.csv"]]
    again = plan_fetch(example, to=to)
    assert again.missing == ()
    assert fetch(again) == places
    assert len(site.asked) == 2


def test_only_what_is_missing_is_fetched(site, example, tmp_path):
    to = tmp_path / "data"
    fetch(plan_fetch(example, to=to, names=["nodes.csv"]))
    plan = plan_fetch(example, to=to, with_optional=True)
    assert [file.name for file in plan.missing] == ["jobs.tar.gz", "usage.csv"]
    assert not plan.is_first
    fetch(plan)
    assert [asked.path for asked in site.asked] == ["/nodes.csv", "/jobs.tar.gz", "/usage.csv"]
    with pytest.raises(UnknownNameError, match="no file of 'example' is named 'x'"):
        plan_fetch(example, to=to, names=["x"])


def test_an_archive_put_there_by_hand_is_verified_and_unpacked(site, example, tmp_path):
    folder = tmp_path / "data" / "example"
    folder.mkdir(parents=True)
    (folder / "jobs.tar.gz").write_bytes(packed("data/jobs.csv", JOBS))
    places = fetch(plan_fetch(example, to=tmp_path / "data", names=["jobs.tar.gz"]))
    assert (places["jobs.tar.gz"] / "data" / "jobs.csv").read_bytes() == JOBS
    assert site.asked == []


def test_a_changed_catalog_checksum_makes_an_unpacked_folder_stale(example, tmp_path):
    to = tmp_path / "data"
    fetch(plan_fetch(example, to=to))
    marker = to / "example" / "jobs" / ".unpacked.json"
    marker.write_text(marker.read_text().replace(example.files[1].sha256, "0" * 64))
    assert [file.name for file in plan_fetch(example, to=to).missing] == ["jobs.tar.gz"]


def test_an_archive_with_other_content_than_stated_leaves_nothing(site, example, tmp_path):
    other = packed("data/jobs.csv", b"something else\n")
    site.put("/jobs.tar.gz", other)
    changed = fetching.replace(example.files[1], sha256=sha(other))
    trace = fetching.replace(example, files=(changed,))
    with pytest.raises(ArchiveError, match="jobs.csv has sha256 .*expected"):
        fetch(plan_fetch(trace, to=tmp_path / "data"))
    assert not (tmp_path / "data" / "example" / "jobs").exists()


def test_a_file_far_larger_than_the_catalog_says_is_refused(site, example, tmp_path):
    site.put("/jobs.tar.gz", b"x" * 3_000_000)
    with pytest.raises(FetchError, match="found 3000000 bytes; expected at most") as caught:
        fetch(plan_fetch(example, to=tmp_path / "data"))
    assert caught.value.kind == "too_large"


def test_no_room_for_what_is_in_the_archive(site, example, tmp_path):
    with pytest.raises(FetchError, match="the archive, and what is in it"):
        fetch(plan_fetch(example, to=tmp_path, names=["jobs.tar.gz"]), limits=DownloadLimits(reserve_bytes=10**18))
    assert site.asked == []


def test_a_file_without_an_address_names_the_page(manual, tmp_path):
    with pytest.raises(FetchError, match="no address of log.swf .*https://example.invalid/manual") as caught:
        plan_fetch(manual, to=tmp_path)
    assert caught.value.kind == "by_hand"
    (tmp_path / "swf").mkdir()
    (tmp_path / "swf" / "log.swf").write_bytes(b"; swf\n")
    assert plan_fetch(manual, to=tmp_path).here == {"log.swf": tmp_path / "swf" / "log.swf"}


def test_where_data_is_looked_for(example, nowhere, monkeypatch, tmp_path):
    assert default_target() == cache_folder() == tmp_path / "cache" / "hindcast"
    (nowhere / "data" / "raw").mkdir(parents=True)
    assert default_target().resolve() == nowhere / "data" / "raw"
    monkeypatch.setenv("HINDCAST_DATA", str(tmp_path / "env"))
    assert default_target() == tmp_path / "env"
    asked = [folder.resolve() for folder in data_folders(tmp_path / "given")]
    assert asked == [
        tmp_path / "given",
        tmp_path / "env",
        nowhere.parent / "shared" / "data",
        nowhere / "data" / "raw",
        cache_folder(),
    ]
    for folder in reversed(asked):  # the nearer one wins
        (folder / "example").mkdir(parents=True)
        (folder / "example" / "nodes.csv").write_bytes(NODES)
        found = find_file(example, example.files[0], data=tmp_path / "given")
        assert found.resolve() == folder / "example" / "nodes.csv"
    (tmp_path / "given" / "mine").mkdir()
    assert find_data("mine", data=tmp_path / "given") == [tmp_path / "given" / "mine"]


@pytest.mark.parametrize("name", ["example", "example/none.csv", "nothing", "../given", "/etc", ""])
def test_missing_data_says_where_it_was_looked_for(tmp_path, name):
    with pytest.raises(BadFileError, match="data/raw") as caught:
        find_data(name, data=tmp_path / "given")
    assert caught.value.kind == "missing"


def test_a_file_of_another_size_is_not_it(example, tmp_path):
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "nodes.csv").write_bytes(NODES[:-1])
    assert find_file(example, example.files[0], data=tmp_path) is None


def test_fetch_asks_only_on_a_terminal(site, tmp_path, capsys):
    assert main(["fetch", "example", "--to", str(tmp_path / "data")]) == 2
    said = capsys.readouterr()
    assert "CC-BY-4.0" in said.out
    assert "Some Paper" in said.out
    assert "--yes" in said.err
    assert site.asked == []
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("answer", "code", "asked"), [("y\n", 0, 2), ("n\n", 1, 0), ("", 1, 0)])
def test_fetch_does_what_the_answer_says(site, tmp_path, monkeypatch, capsys, answer, code, asked):
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["fetch", "example", "--to", str(tmp_path / "data")]) == code
    assert len(site.asked) == asked
    assert "licence: CC-BY-4.0" in capsys.readouterr().out


def test_fetch_with_yes_and_json(site, tmp_path, capsys):
    to = tmp_path / "data"
    assert main(["fetch", "example", "--to", str(to), "--yes", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["licence"] == "CC-BY-4.0"
    assert result["files"] == {"nodes.csv": str(to / "example/nodes.csv"), "jobs.tar.gz": str(to / "example/jobs")}
    # What is here already needs no question and no server.
    assert main(["fetch", "example", "--to", str(to)]) == 0
    assert "hindcast load table" in capsys.readouterr().out
    assert len(site.asked) == 2


def test_fetch_of_an_unknown_trace_and_of_one_by_hand(capsys):
    assert main(["fetch", "exampel"]) == 2
    assert "Did you mean 'example'" in capsys.readouterr().err
    assert main(["fetch", "manual", "--yes"]) == 1
    assert "example.invalid/manual" in capsys.readouterr().err


def test_a_failed_fetch_is_a_sentence(site, tmp_path, capsys):
    del site.resources["/nodes.csv"]
    assert main(["fetch", "example", "--to", str(tmp_path), "--yes"]) == 1
    assert "the answer 404" in capsys.readouterr().err


def test_traces_says_what_is_here(example, tmp_path, capsys):
    assert main(["traces", "--json", "-", "--data", str(tmp_path / "data")]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["example"]["here"] == "no"
    assert rows["example"]["num_bytes"] == len(NODES) + 500
    fetch(plan_fetch(example, to=tmp_path / "data", names=["nodes.csv"]))
    assert main(["traces", "--data", str(tmp_path / "data")]) == 0
    assert "1 of 2" in capsys.readouterr().out
    fetch(plan_fetch(example, to=tmp_path / "data"))
    assert main(["traces", "--json", "-", "--data", str(tmp_path / "data")]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["example"]["here"] == "yes"
    assert rows["example"]["places"]["jobs.tar.gz"].endswith("example/jobs")
