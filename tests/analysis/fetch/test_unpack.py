"""Archives made to do harm, and good ones in every packing: what comes out is the content or nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analysis.errors import UsageError
from analysis.fetch.errors import ArchiveError
from analysis.fetch.unpack import UnpackLimits, unpack

FILES = {"jobs.csv": b"a,b\n1,2\n", "deep/er/nodes.csv": b"x" * 70_000, "empty.csv": b"", "10:30 log.csv": b"t"}
MARKER = ".unpacked.json"


def tar_of(*members):
    """A tar of (name or TarInfo, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            if content is not None:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


def special(name, kind, *, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def zip_of(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for member, content in members:
            packed.writestr(member, content)
    return buffer.getvalue()


def pack_zstd(data, tmp_path):
    path = tmp_path / "packed.zst"
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(data)
    return path.read_bytes()


@pytest.fixture
def run(tmp_path):
    def unpack_bytes(data, **how):
        archive = tmp_path / "archive.bin"
        archive.write_bytes(data)
        return unpack(archive, tmp_path / "to" / "trace", marker=MARKER, **how)

    return unpack_bytes


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name != MARKER
    }


def nothing_left(tmp_path):
    return not (tmp_path / "to").exists() or list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("packing", ["tar", "gzip", "bzip2", "xz", "zstd", "zip"])
def test_every_packing_gives_the_same_files(run, tmp_path, packing):
    tar = tar_of(*FILES.items())
    data = {
        "tar": lambda: tar,
        "gzip": lambda: gzip.compress(tar),
        "bzip2": lambda: bz2.compress(tar),
        "xz": lambda: lzma.compress(tar),
        "zstd": lambda: pack_zstd(tar, tmp_path),
        "zip": lambda: zip_of(*FILES.items()),
    }[packing]()
    told = []
    folder = run(data, check=lambda staging: f"{len(content(staging))}\n", progress=lambda done, _: told.append(done))
    assert content(folder) == FILES
    assert (folder / MARKER).read_text() == "4\n"
    assert told[-1] == sum(map(len, FILES.values()))
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["trace"]


def test_permissions_and_owners_are_not_taken_over(run):
    info = tarfile.TarInfo("run.sh")
    info.mode, info.uid = 0o4777, 12345
    folder = run(tar_of((info, b"x")))
    assert (folder / "run.sh").stat().st_mode & 0o7111 == 0
    assert (folder / "run.sh").stat().st_uid == os.getuid()


def test_unpacking_again_replaces_and_anything_else_is_left_alone(run, tmp_path):
    run(tar_of(("old.csv", b"1")))
    assert content(run(tar_of(("new.csv", b"2")))) == {"new.csv": b"2"}
    (tmp_path / "to" / "trace" / MARKER).unlink()
    with pytest.raises(UsageError, match="did not write"):
        run(tar_of(("newer.csv", b"3")))
    assert content(tmp_path / "to" / "trace") == {"new.csv": b"2"}


@pytest.mark.parametrize("pack", [tar_of, zip_of], ids=["tar", "zip"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil.csv", "leads out"),
        ("a/../../evil.csv", "leads out"),
        ("/tmp/evil.csv", "absolute"),
        ("C:/evil.csv", "absolute"),
        ("..\\evil.csv", "backslash"),
    ],
)
def test_paths_out_of_the_folder(run, tmp_path, pack, name, why):
    with pytest.raises(ArchiveError, match=why) as caught:
        run(pack(("good.csv", b"1"), (name, b"2")))
    assert caught.value.kind == "unsafe"
    assert nothing_left(tmp_path)
    assert not list(tmp_path.rglob("evil.csv"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symlink", "hardlink"])
@pytest.mark.parametrize("link", ["/etc/passwd", "../outside", "a/../../outside", ""])
def test_links_out_of_the_folder(run, tmp_path, kind, link):
    (tmp_path / "to").mkdir()
    with pytest.raises(ArchiveError, match="leads out of the folder"):
        run(tar_of((special("link", kind, link=link), None)))
    assert nothing_left(tmp_path)


def test_a_file_written_through_a_link_stays_inside(run, tmp_path):
    # The classic: a link to a folder outside, then a file "below" it.
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(ArchiveError):
        run(tar_of((special("d", tarfile.SYMTYPE, link=str(outside)), None), ("d/evil.csv", b"1")))
    # A link inside, then a file below its name: the name is taken by a folder, so the link cannot be made.
    with pytest.raises(ArchiveError, match="no file of the archive"):
        run(tar_of(("e/x", b"1"), (special("d", tarfile.SYMTYPE, link="e"), None), ("d/evil.csv", b"1")))
    assert list(outside.iterdir()) == []
    assert nothing_left(tmp_path)


def test_links_to_files_of_the_archive_become_these_files(run):
    folder = run(
        tar_of(
            ("a/jobs.csv", b"1"),
            (special("b/same.csv", tarfile.SYMTYPE, link="../a/jobs.csv"), None),
            (special("hard.csv", tarfile.LNKTYPE, link="a/jobs.csv"), None),
        )
    )
    assert content(folder) == {"a/jobs.csv": b"1", "b/same.csv": b"1", "hard.csv": b"1"}
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_a_link_in_a_zip_is_refused(run):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with pytest.raises(ArchiveError, match="link that leads out"):
        run(zip_of((info, "/etc/passwd")))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes(run, tmp_path, kind):
    with pytest.raises(ArchiveError, match="a device, a pipe"):
        run(tar_of((special("dev", kind), None)))
    assert nothing_left(tmp_path)


def test_all_problems_are_listed_at_once(run):
    members = [("../a", b""), (special("b", tarfile.CHRTYPE), None), ("ok.csv", b"1"), ("ok.csv", b"2"), ("/c", b"")]
    with pytest.raises(ArchiveError, match="4 problems") as caught:
        run(tar_of(*members))
    assert len(caught.value.problems) == 4


def test_one_name_for_a_file_and_a_folder(run):
    with pytest.raises(ArchiveError, match="both a file and a folder"):
        run(tar_of(("a", b"1"), ("a/b", b"2")))


@pytest.mark.parametrize("packed", [False, True])
def test_a_bomb_stops_at_the_limit_not_at_the_end(run, tmp_path, packed):
    # 64 MiB of zeros in some 60 kB; the limit is 1 MiB, and what came out must not be much more.
    data = zip_of(("bomb", bytes(64 * 2**20))) if packed else gzip.compress(tar_of(("bomb", bytes(64 * 2**20))))
    assert len(data) < 100_000
    told = []
    with pytest.raises(ArchiveError, match="more than 1048576 bytes") as caught:
        run(data, limits=UnpackLimits(max_bytes=2**20), progress=lambda done, _: told.append(done))
    assert caught.value.kind == "too_large"
    assert max(told, default=0) <= 2**20
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("pack", [tar_of, zip_of], ids=["tar", "zip"])
def test_too_many_members(run, tmp_path, pack):
    with pytest.raises(ArchiveError, match="more than 10 members"):
        run(pack(*((f"f{i}", b"") for i in range(50))), limits=UnpackLimits(max_members=10))
    assert nothing_left(tmp_path)


def test_a_header_that_would_fill_the_memory(run):
    # An extended header that says it is 8 GiB long; tarfile alone would try to read it whole.
    info = special("x", tarfile.XHDTYPE)
    info.size = 8 * 2**30
    with pytest.raises(ArchiveError, match="a header of 8589934592 bytes"):
        run(tar_of(("good.csv", b"1"))[:1024] + info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


def test_long_names_are_no_attack(run):
    name = "/".join(["folder" * 8] * 8) + "/jobs.csv"
    assert content(run(tar_of((name, b"1")))) == {name: b"1"}


def test_a_damaged_archive(run, tmp_path):
    whole = gzip.compress(tar_of(("jobs.csv", os.urandom(200_000))))
    with pytest.raises(ArchiveError, match="damaged") as caught:
        run(whole[: len(whole) // 2])
    assert caught.value.kind == "damaged"
    with pytest.raises(ArchiveError, match="damaged"):
        run(whole[:-8] + bytes(8))  # the check sum at the very end
    assert nothing_left(tmp_path)


def test_a_zip_whose_content_was_changed(run):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("jobs.csv", "aaaa")
    with pytest.raises(ArchiveError, match="CRC"):
        run(packed.getvalue().replace(b"aaaa", b"bbbb", 1))


def test_what_is_no_archive(run):
    with pytest.raises(ArchiveError, match=r"no archive .*\nExpected tar") as caught:
        run(b"job_id,user\n1,a\n" * 100)
    assert caught.value.kind == "unknown_format"


def test_a_check_that_fails_leaves_nothing(run, tmp_path):
    def check(staging):
        raise ArchiveError(staging, kind="wrong_bytes", problems=[f"{len(content(staging))} files"], fix="")

    with pytest.raises(ArchiveError, match="4 files"):
        run(tar_of(*FILES.items()), check=check)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("packing", ["tar", "gzip", "xz", "zstd", "zip"])
def test_flipped_bytes_end_in_files_or_in_one_sentence(tmp_path, packing):
    # Whatever a damaged or forged archive says: no other exception, nothing outside, nothing half there.
    noise = np.random.default_rng(1).bytes(40_000)
    tar = tar_of(("a/jobs.csv", noise), (special("link", tarfile.SYMTYPE, link="a/jobs.csv"), None), ("b", b"x"))
    good = {
        "tar": lambda: tar,
        "gzip": lambda: gzip.compress(tar, mtime=0),
        "xz": lambda: lzma.compress(tar),
        "zstd": lambda: pack_zstd(tar, tmp_path),
        "zip": lambda: zip_of(("a/jobs.csv", noise), ("b", b"x")),
    }[packing]()
    rng = np.random.default_rng(0)
    archive, before, ends = tmp_path / "archive", None, set()
    for _ in range(80):
        data = bytearray(good)
        # Headers are where the harm is: half of the flips fall into the first 1,600 bytes.
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data) if rng.random() < 0.5 else min(len(data), 1600))] = rng.integers(256)
        archive.write_bytes(data)
        before = before or sorted(path.name for path in tmp_path.iterdir())
        try:
            unpack(archive, tmp_path / "to" / "trace", marker=MARKER, limits=UnpackLimits(max_bytes=2**22))
            ends.add("files")
            shutil.rmtree(tmp_path / "to")
        except ArchiveError as error:
            ends.add(error.kind)
            assert nothing_left(tmp_path)
            shutil.rmtree(tmp_path / "to", ignore_errors=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert len(ends) > 1
