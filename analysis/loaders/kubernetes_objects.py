"""Objects of the Kubernetes API as ``kubectl get … -o json`` prints them: lists, kinds, times, quantities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from analysis.errors import BadFileError, HindcastError
from analysis.loaders.files import peek
from analysis.loaders.records import Records, make_records, read_json

__all__ = [
    "BATCH_JOB",
    "NODE",
    "POD",
    "TRAINING_JOB",
    "VOLCANO_JOB",
    "Item",
    "ObjectError",
    "conditions",
    "counter",
    "dig",
    "is_objects",
    "items_of",
    "label",
    "objects",
    "parse_quantity",
    "parse_time",
    "read_objects",
    "text_of",
]

EXPECTED: Final = "JSON of the Kubernetes API, as 'kubectl get pods,jobs,nodes -A -o json' prints it"
POD: Final = "pod"
NODE: Final = "node"
BATCH_JOB: Final = "job"
VOLCANO_JOB: Final = "volcano job"
TRAINING_JOB: Final = "training job"
#: Kinds of Kubeflow and KubeDL: one replica spec per role.
TRAINING_KINDS: Final = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "XDLJob", "PaddleJob", "JAXJob", "MXJob")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
QUANTITY: Final = re.compile(
    r"\+?(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2})|(m|u|n|k|[MGTPE]|[KMGTPE]i))?"
)
SUFFIXES: Final = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 1e3 ** (power + 2) for power, unit in enumerate("MGTPE")},
    **{f"{unit}i": 1024.0 ** (power + 1) for power, unit in enumerate("KMGTPE")},
}


class ObjectError(HindcastError):
    """An object that cannot be read; the message is the reason for which it is set aside."""


@dataclass(frozen=True)
class Item:
    """One object of a list.

    Attributes
    ----------
    file : str
        Name of its file.
    line : int
        Its number in the list, 1 = first.
    kind : str or None
        POD, NODE, BATCH_JOB, VOLCANO_JOB, TRAINING_JOB; null: of no use here.
    raw : mapping
        The object.
    """

    file: str
    line: int
    kind: str | None
    raw: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """Its UID, else namespace/name.

        Raises
        ------
        ObjectError
            ``no_id``, if it has neither.
        """
        uid = text_of(self.raw, "metadata", "uid")
        name = text_of(self.raw, "metadata", "name")
        if uid or name:
            return uid or f"{text_of(self.raw, 'metadata', 'namespace') or 'default'}/{name}"
        reason = "no_id"
        raise ObjectError(reason)


def is_objects(path: Path) -> bool:
    """Whether a file looks like Kubernetes objects. Never raises."""
    start = peek(path).lstrip("\ufeff").lstrip()
    return start[:1] in ("{", "[") and all(
        re.search(rf'"{key}"\s*:', start) is not None for key in ("apiVersion", "kind", "metadata")
    )


def read_objects(path: Path) -> tuple[Records, str]:
    """Read a list of objects, one object, or a bare array of objects.

    Parameters
    ----------
    path : Path
        Plain or compressed JSON.

    Returns
    -------
    records : Records
        Their number is that in the list.
    kind : str
        The kind that the list says of its items ("Pod" of a PodList); "" if it says nothing.

    Raises
    ------
    BadFileError
        If it is something else.
    """
    value, notes = read_json(path, expected=EXPECTED)
    if isinstance(value, list):
        return make_records(path, value, notes=notes), ""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list | None):
        return make_records(path, value.get("items") or [], notes=notes), kind.removesuffix("List")
    if isinstance(kind, str) and "metadata" in value and "items" not in value:
        return make_records(path, [value], notes=notes), ""
    found = f"JSON that is one {type(value).__name__}" + (f" of kind {kind!r}" if kind else "")
    raise BadFileError(path, kind="wrong_columns", found=found, expected=EXPECTED, fix="Is it the right file?")


def items_of(records: Records, kind: str) -> Iterator[Item]:
    """The objects of a list with what they are."""
    for line, raw in records.records:
        yield Item(records.name, line, _kind(raw, kind), raw)


def _kind(raw: Mapping[str, Any], default: str) -> str | None:
    kind, group = raw.get("kind", default), str(raw.get("apiVersion", "")).split("/", maxsplit=1)[0]
    if kind == "Job":
        return VOLCANO_JOB if group == "batch.volcano.sh" else BATCH_JOB
    if kind in TRAINING_KINDS:
        return TRAINING_JOB
    return {"Pod": POD, "Node": NODE}.get(kind) if isinstance(kind, str) else None


def dig(raw: Any, *keys: str, kind: type = dict) -> Any:
    """Go down through objects; null where a key is missing.

    Raises
    ------
    ObjectError
        ``unreadable_<key>``, if what is there is not of the kind that the API says.
    """
    for number, key in enumerate(keys, start=1):
        raw = raw.get(key)
        if raw is None:
            return None
        if not isinstance(raw, kind if number == len(keys) else dict):
            reason = f"unreadable_{key}"
            raise ObjectError(reason)
    return raw


def objects(raw: Any, *keys: str) -> list[Mapping[str, Any]]:
    """A list of objects; empty where a key is missing.

    Raises
    ------
    ObjectError
        If it is no list of objects.
    """
    found = dig(raw, *keys, kind=list) or []
    if not all(isinstance(entry, dict) for entry in found):
        reason = f"unreadable_{keys[-1]}"
        raise ObjectError(reason)
    return list(found)


def text_of(raw: Any, *keys: str) -> str | None:
    """A text; null where it is missing or empty."""
    return dig(raw, *keys, kind=str) or None


def counter(raw: Any, *keys: str) -> int | None:
    """A count; null where it is missing.

    Raises
    ------
    ObjectError
        If it is no whole number from 0 to a billion.
    """
    found = dig(raw, *keys, kind=int)
    if found is not None and (isinstance(found, bool) or not 0 <= found < 10**9):
        reason = f"unreadable_{keys[-1]}"
        raise ObjectError(reason)
    return found if found is None else int(found)


def label(raw: Any, names: Sequence[str]) -> str | None:
    """The first of some labels or annotations that an object bears."""
    for place in ("labels", "annotations"):
        found = dig(raw, "metadata", place) or {}
        for name in names:
            if isinstance(found.get(name), str) and found[name]:
                return str(found[name])
    return None


def conditions(raw: Any) -> list[Mapping[str, Any]]:
    """The conditions of an object that are true, in their order."""
    return [entry for entry in objects(raw, "status", "conditions") if entry.get("status") == "True"]


def parse_time(raw: Any, *keys: str) -> datetime | None:
    """An instant (RFC 3339); null where it is missing.

    Raises
    ------
    ObjectError
        If the text is no instant.
    """
    found = text_of(raw, *keys)
    if found is None:
        return None
    reason = f"unreadable_{keys[-1]}"
    if TIME.fullmatch(found) is None:
        raise ObjectError(reason)
    # Python reads at most microseconds.
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", found.upper())
    try:
        return datetime.fromisoformat(trimmed).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ObjectError(reason) from error


def parse_quantity(found: Any, *, name: str) -> float:
    """A quantity of a resource, such as "500m", "16Gi" or 2.

    Raises
    ------
    ObjectError
        ``unreadable_<name>``, if it is none.

    Examples
    --------
    >>> [parse_quantity(text, name="x") for text in ("500m", "2", "1Ki", "1e3", 4)]
    [0.5, 2.0, 1024.0, 1000.0, 4.0]
    """
    match = QUANTITY.fullmatch(str(found)) if isinstance(found, str | int | float) else None
    if match is None or isinstance(found, bool):
        reason = f"unreadable_{name}"
        raise ObjectError(reason)
    number, exponent, suffix = match.groups()
    return float(number) * (10.0 ** int(exponent) if exponent else SUFFIXES.get(suffix, 1.0))
