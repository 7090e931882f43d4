"""An HTTP client that stays on the web: http and https only, redirects included."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import urlsplit

from analysis.fetch.errors import FetchError

__all__ = ["make_opener"]


class _StayOnTheWeb(urllib.request.HTTPRedirectHandler):
    """Follow redirects only to http and https, and never from https to http."""

    def redirect_request(self, req: urllib.request.Request, fp: Any, *args: Any) -> urllib.request.Request | None:
        newurl: str = args[-1]
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in {"http", "https"} or (req.type == "https" and scheme == "http"):
            fp.close()
            raise FetchError(
                req.full_url,
                kind="redirect",
                found=f"a redirect to {newurl[:200]!r}",
                expected="one that stays on https (or on http, if it began there)",
                fix="The address may have moved: see the trace's page.",
            )
        return super().redirect_request(req, fp, *args)


def make_opener() -> urllib.request.OpenerDirector:
    """Make an opener that knows http and https only, honours the proxy variables, and keeps no cookies."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        _StayOnTheWeb(),
    ):
        opener.add_handler(handler)
    return opener
