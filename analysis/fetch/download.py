"""Getting one file over HTTP: resumed where it broke off, and refused if it is not what it should be.

Own code on ``urllib`` instead of pooch: pooch's downloader opens its output anew and asks for the whole file each
time (no Range request anywhere in it), so a gigabyte that breaks off at its end begins again. The small libraries that
do resume neither send If-Range (a file that changed between two attempts would be glued together) nor know a Git-LFS
pointer. What is needed beside the standard library is these few functions.

Bytes go to ``<target>.part``, which is kept when a download breaks off and carried on by the next one; only a complete
and verified file gets the target's name. A ``.part`` is carried on if the server proves with If-Range that its file is
still the same one (a strong ETag or a Last-Modified time), or if the checksum is known and will tell.
"""

from __future__ import annotations

import http.client
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from analysis.fetch.answers import Answer, read_answer, refuse_what_is_no_data
from analysis.fetch.errors import FetchError
from analysis.fetch.partial import Part, alone, file_sha256
from analysis.fetch.web import make_opener

__all__ = ["DownloadLimits", "Progress", "download"]

BLOCK_BYTES: Final = 256 * 1024
SNIFF_BYTES: Final = 4096
#: Answers that may be another one a little later.
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Called with the bytes that are there and the total [bytes; null = the server does not say].
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class DownloadLimits:
    """How patient a download is, and how large it may be.

    Attributes
    ----------
    timeout_s : float
        How long a connection may be silent [s].
    num_retries : int
        Attempts in a row that bring nothing new before it gives up.
    max_attempts : int
        Attempts in all, also those that brought something.
    backoff_s, max_backoff_s : float
        Pause after the first failure, doubled after each further one, up to the longest [s].
    max_bytes : int
        Larger files are refused [bytes].
    reserve_bytes : int
        What must stay free on the disk [bytes].
    """

    timeout_s: float = 30.0
    num_retries: int = 5
    max_attempts: int = 200
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    max_bytes: int = 16 * 1024**3
    reserve_bytes: int = 64 * 1024**2


class _Dropped(Exception):  # noqa: N818 - a signal to the loop, never seen outside
    """The connection broke off, or the server asked to come again; ``wait_s`` if it said when."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


def download(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    limits: DownloadLimits = DownloadLimits(),
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Download a file, carrying on with what an earlier attempt left.

    Parameters
    ----------
    url : str
        An http or https address.
    target : Path
        Where the file shall be. If it is there already with the right size and checksum, nothing is downloaded.
    size : int, optional
        The file's exact size, if known [bytes].
    sha256 : str, optional
        Its checksum, if known.
    limits : DownloadLimits, optional
        How patient and how large.
    progress : callable, optional
        Called with bytes done and bytes in all (null = unknown).
    pause : callable, optional
        Waits for a number of seconds between attempts.

    Returns
    -------
    Path
        ``target``, complete and verified.

    Raises
    ------
    FetchError
        See its ``kind``. Wrong bytes are removed; a download that broke off stays as ``<target>.part``.
    """
    _check_scheme(url)
    if target.exists():
        return _check_existing(target, size=size, sha256=sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Part(target.with_name(target.name + ".part"), url)
    with alone(part):
        _persist(part, _Wanted(size, sha256, limits, progress), pause)
        _verify(part, size=size, sha256=sha256)
        part.path.replace(target)
        part.notes.unlink(missing_ok=True)
    return target


@dataclass(frozen=True)
class _Wanted:
    size: int | None
    sha256: str | None
    limits: DownloadLimits
    progress: Progress | None


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme.lower() not in {"http", "https"} or not urlsplit(url).hostname:
        fix = "Correct the address in the catalog."
        raise FetchError(url, kind="scheme", found="another kind of address", expected="http or https", fix=fix)


def _check_existing(target: Path, *, size: int | None, sha256: str | None) -> Path:
    found = target.stat().st_size
    if size not in {None, found} or (sha256 is not None and file_sha256(target) != sha256):
        raise FetchError(
            target,
            kind="exists",
            found=f"a file of {found} bytes with other content",
            expected=f"nothing, or the very file (size {size}, sha256 {sha256})",
            fix="Move it away, or fetch to another folder.",
        )
    return target


def _persist(part: Part, wanted: _Wanted, pause: Callable[[float], None]) -> None:
    """Attempt until the file is complete; give up after too many attempts that brought nothing new."""
    limits = wanted.limits
    furthest, idle = part.size, 0
    for _ in range(limits.max_attempts):
        try:
            _attempt(part, wanted)
        except _Dropped as dropped:
            reached, why = part.size, dropped
        else:
            return
        idle = 0 if reached > furthest else idle + 1
        furthest = max(furthest, reached)
        if idle > limits.num_retries:
            break
        wait_s = why.wait_s if why.wait_s is not None else limits.backoff_s * 2.0 ** min(idle, 30)
        pause(min(wait_s, limits.max_backoff_s))
    raise FetchError(
        part.url,
        kind="dropped",
        found=f"{why} (after several attempts, {part.size} bytes were there)",
        expected="the whole file",
        fix="Run the same command again: it carries on where this one stopped.",
    )


def _attempt(part: Part, wanted: _Wanted) -> None:
    """Ask once, for what is missing, and write what comes."""
    offset = part.size
    validator = part.validator()
    if not offset or (validator is None and wanted.sha256 is None):
        offset = 0
    # "identity": a body packed on the way would have another length and checksum than the file.
    headers = {"User-Agent": "hindcast", "Accept-Encoding": "identity"}
    if offset:
        headers |= {"Range": f"bytes={offset}-"} | ({"If-Range": validator} if validator else {})
    request = urllib.request.Request(part.url, headers=headers)
    try:
        with make_opener().open(request, timeout=wanted.limits.timeout_s) as response:
            _receive(response, part, wanted, offset=offset)
    except urllib.error.HTTPError as error:
        with error:
            _judge(error, part, wanted, offset=offset)
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            fix = "Check this machine's clock and certificates, or its proxy."
            found = f"a certificate that does not hold ({error.reason.verify_message})"
            raise FetchError(part.url, kind="certificate", found=found, expected="a valid one", fix=fix) from error
        what = f"no connection ({error.reason})"
        raise _Dropped(what) from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        what = f"a connection that broke off ({type(error).__name__}: {error})"
        raise _Dropped(what) from error


def _judge(error: urllib.error.HTTPError, part: Part, wanted: _Wanted, *, offset: int) -> None:
    """Decide what an answer outside 2xx means; return if the part is complete."""
    if error.code == 416 and offset:
        total = read_answer(error.headers, status=416, offset=offset).total
        if total == offset:
            return
        part.remove()
        what = f"the server's file ({total} bytes) is shorter than what was there ({offset} bytes)"
        raise _Dropped(what, wait_s=0.0)
    said = f"the answer {error.code} {error.reason}"
    if error.code in PASSING:
        after = error.headers.get("Retry-After", "")
        raise _Dropped(said, wait_s=float(after) if after.isdigit() else None)
    fix = "The file may have moved or need a login: see the trace's page."
    kind = "redirect" if 300 <= error.code < 400 else "refused"
    raise FetchError(part.url, kind=kind, found=said, expected=f"the file{_sized(wanted)}", fix=fix)


def _sized(wanted: _Wanted) -> str:
    return f" of {wanted.size} bytes" if wanted.size is not None else ""


def _receive(response: Any, part: Part, wanted: _Wanted, *, offset: int) -> None:
    """Write the body behind what is there, or from the start if the server sends the whole file."""
    answer = read_answer(response.headers, status=response.status, offset=offset)
    _check_range(answer, part, offset=offset)
    head = b""
    if answer.offset == 0:
        head = _read(response, SNIFF_BYTES)
        if not head and answer.total:
            what = "a connection that broke off before the first byte"
            raise _Dropped(what)
        refuse_what_is_no_data(part.url, head=head, answer=answer, size=wanted.size)
    _check_room(part, wanted, answer)
    part.note(answer.validator)
    with part.path.open("r+b" if answer.offset else "wb") as file:
        file.seek(answer.offset)
        file.truncate()
        written = _copy(response, file, head=head, wanted=wanted, answer=answer, part=part)
    if answer.total is not None and written < answer.total:
        what = f"a connection that broke off at byte {written} of {answer.total}"
        raise _Dropped(what)


def _check_range(answer: Answer, part: Part, *, offset: int) -> None:
    """Begin anew if a part came that does not follow on what is there, or of a file that has changed since."""
    noted = part.validator()
    is_other = noted is not None and answer.validator is not None and noted != answer.validator
    if answer.offset not in {0, offset} or (answer.offset and is_other):
        part.remove()
        what = "a part that does not follow on what was there; the file on the server may have changed"
        raise _Dropped(what, wait_s=0.0)


def _read(response: Any, num_bytes: int) -> bytes:
    """Read up to so many bytes; less only at the end."""
    pieces, got = [], 0
    while got < num_bytes and (piece := response.read(num_bytes - got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def _check_room(part: Part, wanted: _Wanted, answer: Answer) -> None:
    """Refuse a file of another size than it must have, one that is too large, and one that the disk cannot take."""
    limits, total = wanted.limits, answer.total if answer.total is not None else wanted.size
    if wanted.size is not None and total != wanted.size:
        part.remove()
        fix = "It was replaced by another: see the trace's page."
        found = f"a file of {total} bytes"
        raise FetchError(part.url, kind="wrong_size", found=found, expected=f"{wanted.size} bytes", fix=fix)
    if total is not None and total > limits.max_bytes:
        part.remove()
        raise _too_large(part.url, f"{total} bytes", limits)
    free = shutil.disk_usage(part.path.parent).free
    needed = (total or 0) - answer.offset + limits.reserve_bytes
    if needed > free:
        found = f"{free} bytes free in {part.path.parent}"
        expected = f"{needed} bytes ({limits.reserve_bytes} of them stay free)"
        fix = "Make room, or fetch to another folder with --to."
        raise FetchError(part.url, kind="no_space", found=found, expected=expected, fix=fix)


def _too_large(url: str, found: str, limits: DownloadLimits) -> FetchError:
    expected, fix = f"at most {limits.max_bytes} bytes", "Look at the trace's page: this is not the file it describes."
    return FetchError(url, kind="too_large", found=found, expected=expected, fix=fix)


def _copy(response: Any, file: IO[bytes], *, head: bytes, wanted: _Wanted, answer: Answer, part: Part) -> int:
    """Write the body and say how long the file is now [bytes]; a body longer than announced is cut off by the limit."""
    most = min(wanted.limits.max_bytes, wanted.size if wanted.size is not None else wanted.limits.max_bytes)
    done, block = answer.offset, head or response.read(BLOCK_BYTES)
    while block:
        done += len(block)
        if done > most:
            part.remove()
            raise _too_large(part.url, f"more than {most} bytes", wanted.limits)
        file.write(block)
        if wanted.progress:
            wanted.progress(done, answer.total if answer.total is not None else wanted.size)
        # read1 gives what has come in: what a dropped connection brought is kept.
        block = response.read1(BLOCK_BYTES)
    return done


def _verify(part: Part, *, size: int | None, sha256: str | None) -> None:
    """Refuse and remove a complete file that is not the right one."""
    found_size = part.size
    found_sum = file_sha256(part.path) if sha256 is not None else None
    if size in {None, found_size} and found_sum == sha256:
        return
    part.remove()
    raise FetchError(
        part.url,
        kind="wrong_bytes",
        found=f"{found_size} bytes with sha256 {found_sum}",
        expected=f"{found_size if size is None else size} bytes with sha256 {sha256}",
        fix="They were removed. Try once more; if it stays so, the file was replaced: see the trace's page.",
    )
