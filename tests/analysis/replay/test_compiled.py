"""Compiled code is kept between runs and made anew when any file that it melts in changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.replay import _compiled, _loop


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
