"""The catalog: its facts against the files that are here, and every mistake named at once."""

from __future__ import annotations

import re

import pytest

from analysis.errors import SchemaError, UnknownNameError
from analysis.fetch.catalog import get_trace, parse_catalog, traces
from analysis.fetch.partial import file_sha256
from analysis.fetch.places import find_file
from analysis.loaders import LOADERS

GOOD = """
[t]
title = "T"
licence = "MIT"
citation = "C"
page = "https://example.invalid/"
base = "https://example.invalid/data/"
files = [{ name = "a.csv", size = 3 }, { name = "b.tar.gz", url = "http://other.invalid/b", unpack = true }]
"""


def test_a_small_catalog_is_read():
    trace = parse_catalog(GOOD)["t"]
    assert [file.url for file in trace.files] == ["https://example.invalid/data/a.csv", "http://other.invalid/b"]
    assert trace.files[1].folder == "b"
    assert trace.num_bytes is None
    assert trace.num_jobs is None


def test_every_mistake_is_named_at_once():
    text = """
    [one]
    title = 5
    licence = "MIT"
    page = "p"
    colour = "red"
    zone_certainty = "sure"
    files = [
      { name = "../a", sha256 = "abc" },
      { name = "b", url = "ftp://x/b", size = 0 },
      { name = "b", url = "https://x/b", unpack = "yes" },
      { url = "https://x/c" },
      { name = "d", url = "https://x/d" },
      { name = "d", url = "https://x/d", lies_at = ["/etc/passwd"] },
    ]
    [two]
    files = []
    """
    with pytest.raises(SchemaError) as caught:
        parse_catalog(text)
    said = "\n".join(caught.value.violations)
    for mistake in (
        "title is 5",
        "'citation' is missing",
        "no key is named 'colour'",
        "zone_certainty is 'sure'",
        "'../a' is not a path below a folder",
        "'abc' is no sha256",
        "'ftp://x/b' is no http",
        "size is 0",
        "unpack is 'yes'",
        "file 4: key 'name' is missing",
        "'d' is listed twice",
        "'/etc/passwd' is not a path",
        "two: files is []",
    ):
        assert mistake in said


@pytest.mark.parametrize("text", ["[t", "t = 5", "[t]\nfiles = 3", "[t]\nfiles = [3]"])
def test_what_is_no_catalog(text):
    with pytest.raises(SchemaError, match="catalog"):
        parse_catalog(text)


def test_the_traces_that_are_known():
    # Figures as the sources state them.
    known = traces()
    assert known["philly"].num_jobs == 117_325
    assert known["philly"].files[0].size == 1_055_988_361
    assert known["helios"].num_jobs == 246_708 + 872_886 + 1_753_078 + 490_309
    assert len([f for f in known["pai"].files if f.sha256 and f.unpacked_sha256]) == 7
    assert len(known["openb"].files) == 26
    assert known["sia_workloads"].num_jobs == 28 * 160
    with pytest.raises(UnknownNameError, match=r"Did you mean 'philly'"):
        get_trace("phily")


def test_every_address_is_one_that_serves_the_data_itself():
    # raw.githubusercontent.com serves LFS pointers: of the repositories here only Philly's uses LFS.
    for trace in traces().values():
        for file in trace.files:
            assert file.url is None or re.match("https://", file.url), file
            assert "philly-traces" not in (file.url or "") or "media." in (file.url or "")


@pytest.mark.parametrize("trace", traces().values(), ids=lambda trace: trace.name)
def test_the_loader_that_it_names_is_registered(trace):
    if trace.loader is not None and trace.loader not in LOADERS:
        close = [name for name in LOADERS if name in trace.loader or trace.loader in name]
        assert not close, f"did the catalog mean {close}?"
        pytest.skip(f"no loader {trace.loader!r} yet")


@pytest.mark.parametrize("name", [t.name for t in traces().values() if any(file.lies_at for file in t.files)])
def test_what_is_on_this_machine_has_the_stated_size_and_checksum(name, real_data):
    trace = traces()[name]
    here = [file for file in trace.files if file.lies_at]
    for file in here:
        real_data(file.lies_at[0])
    for file in here:
        path = find_file(trace, file, folders=[real_data("INDEX.md").parent])
        assert path is not None, file.name
        if file.sha256 and path.suffix == "." + file.name.rsplit(".", 1)[-1]:
            assert file_sha256(path) == file.sha256
            assert file.size in {None, path.stat().st_size}
