"""How a sacct export is written: its delimiter, its fields, whether it has a header and trailing delimiters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Final

from analysis.errors import BadFileError, UsageError
from analysis.loaders.files import BOMS_NOT_UTF8, open_bytes, peek, readable

__all__ = ["FREE_TEXT", "IDS", "KNOWN_FIELDS", "Layout", "certainty", "parse_fields", "read_layout"]

FIELD_NAMES: Final = """
Account AdminComment AllocCPUS AllocGRES AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite
AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints Container ConsumedEnergy ConsumedEnergyRaw CPUTime
CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible End ExitCode Extra FailedNode Flags GID Group
HetJobID HetJobOffset JobID JobIDRaw JobName Layout Licenses MaxDiskRead MaxDiskReadNode MaxDiskReadTask
MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask
MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks PackJobID
PackJobOffset Partition Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW QOSREQ Reason ReqCPUFreq
ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqGRES ReqMem ReqNodes ReqTRES ResvCPU ResvCPURAW Reservation
ReservationId Reserved Restarts SegmentSize SLUID Start State StdErr StdIn StdOut Submit SubmitLine Suspended
SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode
TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve
TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask
TRESUsageOutTot UID User UserCPU WCKey WCKeyID WorkDir
"""
#: Every field of sacct, old and new ones; sacct takes them in any case and prints them so.
KNOWN_FIELDS: Final = tuple(FIELD_NAMES.split())
#: Fields that users fill: they may hold the delimiter or a newline.
FREE_TEXT: Final = (
    "JobName",
    "Comment",
    "AdminComment",
    "SystemComment",
    "Constraints",
    "Extra",
    "StdErr",
    "StdIn",
    "StdOut",
    "SubmitLine",
    "WorkDir",
)
#: The fields that name a job.
IDS: Final = ("JobID", "JobIDRaw")
READ_BYTES: Final = 1024 * 1024
#: At least one of these stands in any export that is worth loading.
TELLING: Final = {"State", "Elapsed", "ElapsedRaw", "Submit", "Start", "AllocTRES", "ReqTRES", "TimelimitRaw"}
CANONICAL: Final = {name.lower(): name for name in KNOWN_FIELDS}
DELIMITERS: Final = ("|", ";", "\t", ",", "^", "@", "~", "!", "%", "\x1f", "#", ":")
HOW: Final = (
    "Export with 'SLURM_TIME_FORMAT=%s sacct -a -X -D -P --noconvert -S 2026-01-01 -o "
    "JobIDRaw,JobID,User,Account,Partition,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,Suspended,State,NNodes,"
    "NCPUS,ReqTRES,AllocTRES,NodeList'."
)


@dataclass(frozen=True)
class Layout:
    """How the lines of an export are to be cut.

    Attributes
    ----------
    delimiter : str
        One or more characters.
    fields : tuple of str
        Names in sacct's own spelling where sacct knows them, as written where not; a second one of a name gets ``_2``.
    header_line : int
        Physical line of the header; 0 if there is none.
    """

    delimiter: str
    fields: tuple[str, ...]
    header_line: int


def _canonical(words: Sequence[str]) -> list[str]:
    """Field names without blanks and widths (``JobName%30``), in sacct's spelling."""
    bare = [re.sub(r"%-?\d*$", "", word.strip()) for word in words]
    return [CANONICAL.get(word.lower(), word) for word in bare]


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    unique = []
    for number, name in enumerate(names, start=1):
        filled = name or f"column_{number}"
        seen[filled] = seen.get(filled, 0) + 1
        unique.append(filled if seen[filled] == 1 else f"{filled}_{seen[filled]}")
    return tuple(unique)


def parse_fields(text: str | Sequence[str]) -> tuple[str, ...]:
    """Read the option ``fields``: what was given to sacct's ``-o``.

    Parameters
    ----------
    text : str or sequence of str
        Names in the order of the columns, e.g. "JobIDRaw,User,State%20".

    Returns
    -------
    tuple of str

    Raises
    ------
    UsageError
        If neither JobID nor JobIDRaw is among them.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    names = _unique(_canonical(words))
    if not set(IDS) & set(names):
        close = [found[0] for word in names if (found := get_close_matches(word, IDS, n=1, cutoff=0.7))]
        guess = f" (close: {', '.join(close)})" if close else ""
        msg = f"slurm: the fields {', '.join(names)} have no job id; expected JobID or JobIDRaw among them{guess}."
        raise UsageError(msg)
    return names


def _header_delimiter(line: str) -> str | None:
    """What stands between the first two names of a header, if the first is a field of sacct."""
    found = re.match(r"\s*([A-Za-z]+)([^A-Za-z0-9_\s]+|\t)\s*[A-Za-z]", line)
    if found:
        return found[2]
    # A third party's field before: look for the mark next to the id.
    near = re.search(r"([^A-Za-z0-9_\s]+|\t)(?:JobIDRaw|JobID)\b|\b(?:JobIDRaw|JobID)([^A-Za-z0-9_\s]+|\t)", line, re.I)
    return (near[1] or near[2]) if near else None


def _header(line: str, delimiter: str | None) -> tuple[str, tuple[str, ...]] | None:
    """Delimiter and fields, if the line is a header: it names an id, and most of its names are sacct's."""
    mark = delimiter or _header_delimiter(line)
    words = [word.strip() for word in line.rstrip("\r\n").split(mark)] if mark else [line.strip()]
    names = _canonical(words)
    while names and not names[-1]:
        names.pop()
    known = sum(name in KNOWN_FIELDS for name in names)
    if not set(IDS) & set(names) or known * 2 <= len(names):
        return None
    return mark or "|", _unique(names)


def certainty(path: Path) -> float:
    """How surely a file is a sacct export with a header, 0-1; for ``sniff``. Never raises."""
    line = next((line for line in peek(path).splitlines() if line.strip()), "")
    found = _header(line, None)
    if found is None:
        return 0.0
    fields = found[1]
    telling = {"State", "Elapsed", "ElapsedRaw", "Submit", "Start", "AllocTRES", "ReqTRES", "TimelimitRaw"} & set(
        fields
    )
    share = sum(name in KNOWN_FIELDS for name in fields) / len(fields)
    return 0.95 * share if telling else 0.4


def read_layout(path: Path, *, delimiter: str | None, fields: tuple[str, ...] | None) -> Layout:
    """Find out how an export is written.

    Parameters
    ----------
    path : Path
        Plain or compressed.
    delimiter : str, optional
        What was given to ``--delimiter``; if null it is recognised.
    fields : tuple of str, optional
        The columns of an export without header (``sacct -n``). A header that is there all the same is skipped.

    Raises
    ------
    BadFileError
        Of kind ``encoding``, ``empty``, ``fixed_width`` or ``wrong_columns``.
    """
    with readable(path), open_bytes(path) as stream:
        number, line = _first_line(path, stream)
        following = stream.readline().decode("utf-8", errors="replace")
    _refuse_fixed_width(path, line, following)
    found = _header(line, delimiter)
    if fields is not None:
        mark = delimiter or (found[0] if found else _fitting(path, line, len(fields)))
        return Layout(mark, fields, number if found else 0)
    if found is None:
        # A file that is damaged further on is told by that.
        with readable(path), open_bytes(path) as stream:
            while stream.read(READ_BYTES):
                pass
        names = ", ".join(re.split(r"[|;\t,]", line.strip())[:6])
        raise BadFileError(
            path,
            kind="wrong_columns",
            found=f"a first line that is no header of sacct ({names})",
            expected="names of sacct's fields, JobID or JobIDRaw among them",
            fix=f"Of an export without header give the names: --option fields=JobIDRaw,User,…. {HOW}",
        )
    return Layout(found[0], found[1], number)


def _first_line(path: Path, stream: IO[bytes]) -> tuple[int, str]:
    number = 0
    while raw := stream.readline():
        if not number and (raw.startswith(BOMS_NOT_UTF8) or b"\x00" in raw[:64]):
            text = "text in UTF-16 or UTF-32, or no text at all"
            raise BadFileError(path, kind="encoding", found=text, expected="UTF-8", fix="Convert it with 'iconv'.")
        number += 1
        line = raw.decode("utf-8-sig", errors="replace")
        if line.strip():
            return number, line.rstrip("\r\n")
    found = "a file with blank lines only"
    raise BadFileError(path, kind="empty", found=found, expected="an export of sacct", fix=HOW)


def _refuse_fixed_width(path: Path, line: str, following: str) -> None:
    if re.fullmatch(r"[-\s]+", following.strip() or "x") and "--" in following and "jobid" in line.lower():
        raise BadFileError(
            path,
            kind="fixed_width",
            found="columns of fixed width, in which sacct cuts long values",
            expected="a parsable export (-P or -p)",
            fix=HOW,
        )


def _fitting(path: Path, line: str, num: int) -> str:
    """The delimiter under which a line without header has the right number of fields."""
    for mark in DELIMITERS:
        parts = line.split(mark)
        if len(parts) == num or (len(parts) == num + 1 and not parts[-1].strip()):
            return mark
    if num == 1:
        return "|"
    raise BadFileError(
        path,
        kind="wrong_columns",
        found=f"a first line that no usual delimiter cuts into {num} fields ({line[:80]!r})",
        expected=f"the {num} fields that were given",
        fix="Give the delimiter, and check that the fields are those that sacct was asked for.",
    )
