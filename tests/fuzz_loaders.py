# ruff: noqa: T201 - a script: what it prints is its result
"""Feed spoilt samples to every loader: ``python -m tests.fuzz_loaders --seconds 600``.

A sample (tests/golden/<loader>/raw) is copied, one of its files is mutated several times over (bytes flipped, cut off,
lines dropped, doubled, swapped, fields exchanged, numbers made huge, values of JSON exchanged, other encodings …), and
it is loaded, as a folder or by the names of its files. Either a trace comes out, whose rows in are its rows used and
set aside, or a HindcastError. Anything else (another exception, more than ``--limit`` seconds, lost rows) is a find:
it is printed with its seed, and its input kept. Exit 1 if there is any.

The same seed makes the same inputs in the same order.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis import schema
from analysis.errors import HindcastError
from analysis.loaders import LOADERS, load

GOLDEN = Path(__file__).resolve().parent / "golden"
_spec = importlib.util.spec_from_file_location("make_expected", GOLDEN / "make_expected.py")
make_expected = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_expected)

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
WORDS = (
    b"", b"-1", b"0", b"1e308", b"-1e308", b"1e999", b"9" * 25, b"9" * 5000, b"99999999999999", b"NaN", b"inf", b"null",
    b"None", b"0x1F", b"1970-01-01 00:00:00", b"9999-12-31 23:59:59", b"0001-01-01", b"2021-02-30", b"\xff\xfe",
    b"\x00",
    b'"', b"'", b"[]", b"{}", b"[[[[", b"true", "é\u202e😀".encode(), b"  ", b"\t", b"-0", b"+5", b"1_000", b"1,5",
)  # fmt: skip
Mutation = Callable[[bytes, random.Random], bytes]


class TooLong(BaseException):
    """Not an Exception, so that no handler on the way takes it for a bad file."""


def flip(data: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(WORDS) + data[at + rng.choice((0, 0, 1, 3)) :]


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")


def drop_line(data: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def double_line(data: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"\n".join(lines)


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def break_line(data: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    at = rng.randrange(len(lines))
    lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
    return b"\n".join(lines)


def swap_fields(data: bytes, rng: random.Random) -> bytes:
    """Exchange two fields of one line, by whatever separates them."""
    lines = _lines(data)
    at = rng.randrange(len(lines))
    separator = max((b",", b"\t", b"|", b" ", b":"), key=lines[at].count)
    fields = lines[at].split(separator)
    one, other = rng.randrange(len(fields)), rng.randrange(len(fields))
    fields[one], fields[other] = fields[other], fields[one]
    lines[at] = separator.join(fields)
    return b"\n".join(lines)


def replace_field(data: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    at = rng.randrange(len(lines))
    separator = max((b",", b"\t", b"|", b" ", b":"), key=lines[at].count)
    fields = lines[at].split(separator)
    fields[rng.randrange(len(fields))] = rng.choice(WORDS)
    lines[at] = separator.join(fields)
    return b"\n".join(lines)


def change_number(data: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(WORDS) + data[match.end() :]


def exchange_numbers(data: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(data))
    if len(found) < 2:
        return data
    one, other = sorted(rng.sample(found, 2), key=lambda match: match.start())
    return data[: one.start()] + other[0] + data[one.end() : other.start()] + one[0] + data[other.end() :]


def encode(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("utf-8", errors="replace")
    encoding = rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "cp500", "utf-8-sig"))
    return text.encode(encoding, errors="replace")


def line_ends(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"\n\r")))


#: Stand-ins for a value of JSON.
VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    1e300,
    10**30,
    "",
    "x",
    "1e400",
    "2024-99-01T00:00:00Z",
    [],
    [[]],
    {},
    {"a": None},
    "9" * 400,
)


def _places(value: object) -> list[tuple[dict | list, object]]:
    """Every place in a JSON value that can be changed."""
    found, todo = [], [value]
    while todo:
        part = todo.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        found += [(part, key) for key in keys]
        todo += [part[key] for key in keys]
    return found


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Put something else in a few places of a JSON file; other files stay as they are."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        places = _places(value)
        if not places:
            break
        part, key = rng.choice(places)
        how = rng.randrange(4)
        if how == 0:
            del part[key]
        elif how == 1:
            other, there = rng.choice(places)
            part[key], other[there] = other[there], part[key]
            # Exchanging a part with something inside of it would make a circle.
            value = json.loads(data) if _is_circle(value) else value
        else:
            part[key] = rng.choice(VALUES)
    return json.dumps(value).encode()


def _is_circle(value: object) -> bool:
    try:
        json.dumps(value)
    except (ValueError, RecursionError):
        return True
    return False


def repeat(data: bytes, rng: random.Random) -> bytes:
    return data * rng.randint(2, 3)


MUTATIONS: tuple[Mutation, ...] = (
    flip, cut, insert, insert, drop_line, double_line, swap_lines, break_line, swap_fields, swap_fields, replace_field,
    replace_field, change_number, change_number, change_number, exchange_numbers, encode, line_ends, repeat,
    change_json, change_json, change_json, change_json,
)  # fmt: skip


def names() -> list[str]:
    """Loaders with a sample."""
    return [name for name in sorted(LOADERS) if (GOLDEN / name / "sample.toml").exists()]


def spoil(raw: Path, rng: random.Random) -> None:
    """Mutate one file of a copied sample."""
    path = rng.choice(sorted(p for p in raw.rglob("*") if p.is_file()))
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if data:
            data = rng.choice(MUTATIONS)(data, rng)
    path.write_bytes(data)


def outcome(name: str, raw: list[Path], *, limit: float) -> tuple[str, str]:
    """Load it: ("loaded" | "refused" | "crash" | "hang" | "lost", what is to be said)."""

    def ring(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        trace = load(name, raw, **make_expected.read_sample(name)["options"])
        for table in schema.TABLES:
            trace.table(table)
    except HindcastError as error:
        return ("refused", type(error).__name__) if str(error) else ("crash", "an error without a sentence")
    except TooLong:
        return "hang", "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
    except BaseException as error:
        # A panic of polars is no Exception; every one of them is a find.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "crash", "".join(traceback.format_exc().splitlines(keepends=True)[-14:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    report = trace.meta.load_report
    if report.rows_in != report.rows_used + report.rows_set_aside or report.rows_set_aside != trace.rejects.height:
        return "lost", f"{report.rows_in} in, {report.rows_used} used, {report.rows_set_aside} set aside"
    return "loaded", ""


def cases(seed: int, chosen: list[str]) -> Iterator[tuple[int, str, random.Random]]:
    """Numbered cases, loader by loader."""
    number = 0
    while True:
        for name in chosen:
            yield number, name, random.Random(f"{seed}/{number}/{name}")
            number += 1


def run(*, seconds: float, seed: int, chosen: list[str], limit: float, keep: Path) -> int:
    """Fuzz for some time; the number of finds."""
    counts: Counter[tuple[str, str]] = Counter()
    finds: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for number, name, rng in cases(seed, chosen):
            if time.monotonic() > until:
                break
            raw = Path(folder) / "raw"
            shutil.rmtree(raw, ignore_errors=True)
            shutil.copytree(GOLDEN / name / "raw", raw)
            spoil(raw, rng)
            # In a folder, a file that nobody knows is left alone; one that is given by name must be said to be wrong.
            given = [raw] if rng.random() < 0.3 else sorted(path for path in raw.rglob("*") if path.is_file())
            result, said = outcome(name, given, limit=limit)
            counts[name, result] += 1
            if result in ("loaded", "refused"):
                continue
            kind = f"{name}: {result}: {said.strip().splitlines()[-1] if said.strip() else ''}"
            finds[kind] += 1
            if finds[kind] == 1:
                shutil.copytree(raw, keep / f"{name}-{seed}-{number}", dirs_exist_ok=True)
                print(f"--- seed {seed} case {number} {name} {result}\n{said}", flush=True)
    report(counts, finds, keep)
    return sum(finds.values())


def report(counts: Counter[tuple[str, str]], finds: Counter[str], keep: Path) -> None:
    results = ("loaded", "refused", "crash", "hang", "lost")
    print(f"{'loader':14}" + "".join(f"{result:>10}" for result in results))
    for name in sorted({name for name, _ in counts}):
        print(f"{name:14}" + "".join(f"{counts[name, result]:>10}" for result in results))
    total = [sum(count for (_, found), count in counts.items() if found == result) for result in results]
    print(f"{'all':14}" + "".join(f"{count:>10}" for count in total))
    for kind, count in finds.most_common():
        print(f"{count:6}  {kind}")
    if finds:
        print(f"inputs: {keep}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loader", action="append", choices=names(), help="only this one (may be repeated)")
    parser.add_argument("--limit", type=float, default=20, help="seconds that one load may take")
    parser.add_argument("--keep", type=Path, default=None, help="where the inputs of finds are kept")
    given = parser.parse_args()
    keep = given.keep or Path(tempfile.mkdtemp(prefix="fuzz_loaders_"))
    found = run(seconds=given.seconds, seed=given.seed, chosen=given.loader or names(), limit=given.limit, keep=keep)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
