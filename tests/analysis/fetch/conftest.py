from __future__ import annotations

import pytest

from tests.analysis.fetch.server import serve


@pytest.fixture
def site(monkeypatch):
    """A server of our own; nothing in these tests asks any other machine."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as running:
        yield running


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without any data: an empty working directory, cache and environment."""
    here = tmp_path / "home" / "work"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv("HINDCAST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return here
