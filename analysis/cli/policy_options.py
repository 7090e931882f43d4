"""Options of policies as the command line writes them: POLICY.NAME=VALUE, the value by the option's annotated type."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from analysis.errors import HindcastError, UsageError

if TYPE_CHECKING:
    from analysis.replay import Policy

__all__ = ["form_of", "option_types", "text_of", "with_options"]

EXAMPLE: Final = "--option las.thresholds_gpu_s=3600,14400"
TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
MAPPINGS: Final = (Mapping, dict)
PLAIN: Final[dict[Any, str]] = {
    float: "number",
    int: "whole number",
    bool: "true or false",
    str: "text",
    type(None): "none",
}


def with_options(texts: Iterable[str], *, policies: Sequence[str], registry: Mapping[str, Policy]) -> dict[str, Policy]:
    """Give the policies that were asked for their options.

    Parameters
    ----------
    texts : iterable of str
        POLICY.NAME=VALUE each.
    policies : sequence of str
        Names that were asked for.
    registry : mapping of str to Policy
        ``POLICIES``.

    Returns
    -------
    dict of str to Policy
        Those of the asked policies that are in the registry.

    Raises
    ------
    UsageError
        If anything in the texts is not understood; all problems at once.
    """
    problems: list[str] = []
    given: dict[str, dict[str, Any]] = {name: {} for name in policies if name in registry}
    for text in texts:
        try:
            name, option, value = _read(text, asked=given, registry=registry)
        except UsageError as error:
            problems.append(str(error))
            continue
        if option in given[name]:
            problems.append(f"{text!r}: {name}.{option} is given twice")
        given[name][option] = value
    found = {}
    for name, options in given.items():
        try:
            found[name] = registry[name].using(**options) if options else registry[name]
        except HindcastError as error:  # a value of the right type that makes no sense
            problems.append(str(error))
    if problems:
        msg = (
            f"--option: {'; '.join(problems)}. Write POLICY.NAME=VALUE, e.g. {EXAMPLE}; 'hindcast policies' lists all."
        )
        raise UsageError(msg)
    return found


def _read(text: str, *, asked: Mapping[str, Any], registry: Mapping[str, Policy]) -> tuple[str, str, Any]:
    parts = re.fullmatch(r"([^.=]+)\.([^.=]+)=(.*)", text)
    if parts is None:
        msg = f"found {text!r}, which is not POLICY.NAME=VALUE"
        raise UsageError(msg)
    name, option, value = (part.strip() for part in parts.groups())
    if name not in asked:
        what = "is not asked for with --policy" if name in registry else "is no policy with options"
        msg = f"{text!r}: {name!r} {what} (asked for: {', '.join(asked) or 'none that has any'})"
        raise UsageError(msg)
    known = option_types(registry[name])
    if option not in known:
        msg = f"{text!r}: policy {name!r} has no option {option!r} (known: {', '.join(known) or 'none'})"
        raise UsageError(msg)
    try:
        return name, option, _parse(value, known[option])
    except ValueError as error:
        msg = f"{text!r}: found {value!r}, expected {form_of(known[option])}"
        raise UsageError(msg) from error


def option_types(policy: Policy) -> dict[str, Any]:
    """Options of a policy with their annotated types, in the order of its function's arguments."""
    parameters = inspect.signature(policy.key).parameters
    try:
        hints = typing.get_type_hints(policy.key)
    except NameError:  # a user's function may name types that are there for type checkers only
        hints = {}
    return {name: hints.get(name, type(one.default)) for name, one in parameters.items()}


def form_of(annotation: Any) -> str:
    """Say how a value of a type is written.

    Examples
    --------
    >>> form_of(tuple[float, ...])
    'number,number,…'
    >>> form_of(float | tuple[tuple[float, float], ...])
    'number or number:number,number:number,…'
    """
    if annotation in PLAIN:
        return PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType, typing.Literal}:
        return " or ".join(str(one) if origin is typing.Literal else form_of(one) for one in inner)
    if origin in MAPPINGS:
        return f"name:{form_of(inner[1])},name:{form_of(inner[1])},…"
    if origin is tuple and inner[-1] is Ellipsis:
        return f"{form_of(inner[0])},{form_of(inner[0])},…"
    if origin is tuple:
        return ":".join(form_of(one) for one in inner)
    return "text"


def text_of(value: Any) -> str:
    """Write a value as the command line reads it.

    Examples
    --------
    >>> text_of(((8.0, 30.0), (float("inf"), 62.5))), text_of((14400.0,)), text_of(None)
    ('8:30,inf:62.5', '14400', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, tuple):
        is_pairs = any(isinstance(one, tuple) for one in value)
        parts = (":".join(map(text_of, one)) if is_pairs else text_of(one) for one in value)
        return ",".join(parts)
    return str(value)


def _parse(text: str, annotation: Any) -> Any:
    """Read a value of a type.

    Raises
    ------
    ValueError
        If the text is no such value.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return _first(text, inner)
    if origin is typing.Literal:
        return {str(one): one for one in inner}[text] if text in map(str, inner) else _refuse(text)
    if origin in MAPPINGS:
        pairs = [part.rpartition(":")[::2] for part in text.split(",")]
        return {name.strip() or _refuse(text): _parse(value.strip(), inner[1]) for name, value in pairs}
    if origin is tuple and inner[-1] is Ellipsis:
        return tuple(_parse(part.strip(), inner[0]) for part in text.split(","))
    if origin is tuple:
        return tuple(_parse(part.strip(), one) for part, one in zip(text.split(":"), inner, strict=True))
    readers: dict[Any, Callable[[str], Any]] = {float: float, int: int, bool: _truth, type(None): _none}
    return readers.get(annotation, str)(text)


def _first(text: str, choices: Sequence[Any]) -> Any:
    """Read the first type that fits; none before text, since anything is text."""
    for one in sorted(choices, key=lambda one: (one is str, one is not type(None))):
        try:
            return _parse(text, one)
        except ValueError:
            continue
    return _refuse(text)


def _truth(text: str) -> bool:
    return TRUTHS[text.lower()] if text.lower() in TRUTHS else _refuse(text)


def _none(text: str) -> None:
    if text.lower() != "none":
        _refuse(text)


def _refuse(text: str) -> typing.NoReturn:
    raise ValueError(text)
