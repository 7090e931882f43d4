"""How fast a GPU type works, relative to a V100, and which names mean the same type.

The ratios are measured facts that lie in ``speeds.toml`` beside this file, each with its source. One ratio per type is
coarse: which model runs matters as much as the GPU (the file gives each type's lowest and highest pair).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["canonical_type", "is_same_type", "shipped_speeds", "speed_of", "unmeasured"]

#: What a GPU of unknown speed counts as: the reference, a V100.
REFERENCE_SPEED: Final = 1.0
_BRANDS: Final = ("nvidia", "tesla", "quadro", "geforce", "gpu")
_VARIANT: Final = re.compile(r"(sxm\d?|pcie|nvl|nvlink|hgx|dgx|m\d{2,3}|\d{2,3}gb?)$")


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(files("analysis.replay").joinpath("speeds.toml").read_text(encoding="utf-8"))


@cache
def shipped_speeds() -> Mapping[str, float]:
    """Measured speeds by canonical GPU type, relative to a V100 [ratio].

    Examples
    --------
    >>> shipped_speeds()["V100"]
    1.0
    """
    return {name: float(row["speed"]) for name, row in _facts()["types"].items()}


def _plain(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.casefold())
    for brand in _BRANDS:
        if plain.startswith(brand) and len(plain) > len(brand):
            plain = plain.removeprefix(brand)
    return plain


@cache
def canonical_type(name: str) -> str:
    """Family of a GPU type: brand, memory size, form factor and spelling left out.

    Parameters
    ----------
    name : str
        A model as some source writes it.

    Returns
    -------
    str
        A key of ``shipped_speeds`` if it is one of those, else the bare name in upper case.

    Examples
    --------
    >>> [canonical_type(name) for name in ("V100M16", "Tesla-V100", "NVIDIA A100-SXM4-80GB", "T4", "RTX 6000")]
    ['V100', 'V100', 'A100', 'T4', 'RTX6000']
    """
    aliases = {_plain(other): family for other, family in _facts()["aliases"].items()}
    plain = _plain(name)
    while plain not in aliases and (match := _VARIANT.search(plain)) and match.start() > 0:
        rest = plain[: match.start()]
        # "a100" ends in digits too: a variant is cut off only where a model name, letters and a digit, is left.
        if not re.fullmatch(r"[a-z]+\d+[a-z0-9]*", rest):
            break
        plain = rest
    return str(aliases.get(plain, plain.upper()))


def is_same_type(asked: str, found: str) -> bool:
    """Tell whether a GPU that is called ``found`` is one of those asked for as ``asked``.

    Names are equal up to spelling; and a bare family name ("V100") stands for all of its variants ("V100M16"), on
    either side. Two different variants are different types.

    Examples
    --------
    >>> is_same_type("V100", "V100M32"), is_same_type("v100m16", "V100-M16"), is_same_type("V100M16", "V100M32")
    (True, True, False)
    """
    if _plain(asked) == _plain(found):
        return True
    family = canonical_type(asked)
    return family == canonical_type(found) and family in {_plain(asked).upper(), _plain(found).upper()}


def speed_of(name: str | None, overrides: Mapping[str, float] | None = None) -> float | None:
    """Speed of a GPU type relative to a V100 [ratio]; null if nobody measured it or the name is null.

    Parameters
    ----------
    name : str or None
        A model as some source writes it.
    overrides : mapping of str to float, optional
        A cluster's own ratios; a variant's own line goes before its family's.

    Examples
    --------
    >>> speed_of("V100M16"), speed_of("V100", {"V100": 1.5}), speed_of("G2")
    (1.0, 1.5, None)
    """
    if name is None:
        return None
    own = {_plain(key): value for key, value in (overrides or {}).items()}
    families = {_plain(key): value for key, value in shipped_speeds().items()} | own
    return own.get(_plain(name), families.get(_plain(canonical_type(name))))


def unmeasured(names: Collection[str], overrides: Mapping[str, float] | None = None) -> list[str]:
    """GPU types without a measured speed, sorted."""
    return sorted(name for name in names if speed_of(name, overrides) is None)
