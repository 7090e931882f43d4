"""A tar archive of one file is that file; of several, a sentence says what to do."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from analysis.errors import BadFileError
from analysis.loaders.files import open_bytes, payload, peek, readable

DATA = b"a,b\n1,2\n" * 40_000


def pack(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        folder = tarfile.TarInfo("data")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files.items():
            info = tarfile.TarInfo(f"data/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_the_one_file_is_read_and_its_mac_shadow_is_not(tmp_path, mode):
    path = pack(tmp_path / "log.csv", {"._x.csv": b"shadow", "x.csv": DATA}, mode)
    assert payload(path) == DATA
    assert peek(path).startswith("a,b\n1,2\n")
    with readable(path), open_bytes(path) as stream:
        assert stream.readline() == b"a,b\n"
        assert stream.read() == DATA[4:]


def test_several_files_are_refused_when_the_second_is_met(tmp_path):
    path = pack(tmp_path / "all.tar.gz", {"x.csv": DATA, "y.csv": DATA})
    with pytest.raises(BadFileError, match="several files .data/x.csv, data/y.csv.*Unpack it and give the files"):
        payload(path)


def test_no_file_at_all_is_refused(tmp_path):
    with pytest.raises(BadFileError, match="archive without files") as caught:
        payload(pack(tmp_path / "none.tar", {}, "w"))
    assert caught.value.kind == "archive"
    assert peek(tmp_path / "none.tar") == ""


@pytest.mark.parametrize("keep", [600, 2_000, 100_000])
def test_a_cut_archive_is_named(tmp_path, keep):
    path = pack(tmp_path / "log.tar", {"x.csv": DATA}, "w")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFileError) as caught:
        payload(path)
    assert caught.value.kind in ("truncated", "archive")
    path.write_bytes(gzip.compress(path.read_bytes())[:-10])
    with pytest.raises(BadFileError) as caught:
        payload(path)
    assert caught.value.kind in ("truncated", "archive")
