"""Compiled code is kept between runs and made anew when any file that it melts in changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.replay import _compiled, _linked, _loop


def test_kept_code_carries_the_fingerprint_of_all_its_files():
    # numba's own check sees only the file of the function itself; if numba renames what we hook, this fails first.
    assert _loop.run._cache._cache_file._version.endswith(f" {_compiled.fingerprint()}")


def test_the_fingerprint_changes_with_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "_a.py").write_text("1")
    (tmp_path / "_b.py").write_text("2")
    monkeypatch.setattr(_compiled, "__file__", str(tmp_path / "_a.py"))
    before = _compiled.fingerprint.__wrapped__()
    (tmp_path / "_b.py").write_text("3")
    assert _compiled.fingerprint.__wrapped__() != before


def test_without_a_folder_for_the_cache_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_args: object, cache: bool = False, **_options: object):
        if cache:
            msg = "no locator available"
            raise RuntimeError(msg)
        return lambda function: ("compiled", function)

    monkeypatch.setattr(_compiled, "_njit", refuse)
    assert _compiled.entry(len) == ("compiled", len)


def test_functions_of_the_engine_have_no_machine_code_of_their_own():
    # If numba renames what is hooked, everything is compiled as numba does it, at twice the time: this fails first.
    assert _linked.PART
    assert _linked.WHOLE

    @_compiled.compiled
    def twice(x: int) -> int:
        return 2 * x

    @_compiled.entry
    def four_times(x: int) -> int:
        return twice(twice(x))

    assert four_times(3) == 12
    (part,) = twice.overloads.values()
    assert isinstance(part.library, _linked.Part)
    assert part.library.get_pointer_to_function(part.fndesc.llvm_func_name) == 0
    (whole,) = four_times.overloads.values()
    assert isinstance(whole.library, _linked.Whole)
    assert part.fndesc.llvm_func_name not in [fn.name for fn in whole.library.get_defined_functions()]
