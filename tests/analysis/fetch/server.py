"""A real HTTP server on the loopback address that misbehaves as it is told."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Resource:
    """What a path serves, and how badly."""

    body: bytes = b""
    etag: str | None = '"v1"'
    last_modified: str | None = None
    content_type: str = "application/octet-stream"
    knows_ranges: bool = True
    knows_if_range: bool = True
    #: Bytes sent before the connection is cut, one entry a request; after the last, nothing is cut.
    cuts: list[int] = field(default_factory=list)
    #: Answers other than 200, one entry a request, before the file is served.
    statuses: list[int] = field(default_factory=list)
    retry_after: str | None = None
    location: str | None = None
    chunked: bool = False
    #: Seconds of silence before the first byte of the body.
    silence: threading.Event | None = None


@dataclass
class Asked:
    path: str
    range: str | None
    if_range: str | None


class Site:
    """Resources by path, and what was asked for."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.asked: list[Asked] = []
        self.port = 0

    def put(self, path: str, body: bytes = b"", **how) -> str:
        self.resources[path] = Resource(body, **how)
        return f"http://127.0.0.1:{self.port}{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        self.close_connection = True
        self.site.asked.append(Asked(self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        resource = self.site.resources.get(self.path)
        if resource is None:
            self._plain(404)
        elif resource.statuses:
            self._plain(resource.statuses.pop(0), retry_after=resource.retry_after)
        elif resource.location is not None:
            self.send_response(302)
            self.send_header("Location", resource.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._serve(resource)

    def _plain(self, status: int, *, retry_after: str | None = None) -> None:
        self.send_response(status)
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self, resource: Resource) -> None:
        begin, body = self._begin(resource), resource.body
        if begin is not None and begin >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200 if begin is None else 206)
        if begin is not None:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        for name, value in (("ETag", resource.etag), ("Last-Modified", resource.last_modified)):
            if value is not None:
                self.send_header(name, value)
        self.send_header("Content-Type", resource.content_type)
        rest = body[begin or 0 :]
        self.send_header(
            *(("Transfer-Encoding", "chunked") if resource.chunked else ("Content-Length", str(len(rest))))
        )
        self.end_headers()
        if resource.silence is not None:
            resource.silence.wait(20)
        cut = resource.cuts.pop(0) if resource.cuts else None
        self._send(rest if cut is None else rest[:cut], is_whole=cut is None, chunked=resource.chunked)

    def _send(self, data: bytes, *, is_whole: bool, chunked: bool) -> None:
        if not chunked:
            self.wfile.write(data)
            return
        for at in range(0, len(data), 1000):
            piece = data[at : at + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if is_whole:
            self.wfile.write(b"0\r\n\r\n")

    def _begin(self, resource: Resource) -> int | None:
        """First byte asked for; null = the whole file, because nothing else is asked, known, or still true."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        wanted = self.headers.get("If-Range")
        is_stale = resource.knows_if_range and wanted not in {None, resource.etag, resource.last_modified}
        return int(match[1]) if match and resource.knows_ranges and not is_stale else None

    def log_message(self, *args) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is part of these tests; anything else is a fault and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve() -> Iterator[Site]:
    site = Site()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
