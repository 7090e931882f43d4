"""Headless Chromium driven over a pipe in its DevTools protocol: real keys, clicks and downloads, no library needed.

https://chromedevtools.github.io/devtools-protocol/; messages are JSON with a zero byte after each.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
PATIENCE_S = 60.0


class Browser:
    """One page in one browser of its own; events are kept in ``events`` as (method, parameters)."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._number = 0
        self._session: str | None = None
        self._unread = b""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # High numbers, so that the shell can make them 3 and 4 without closing one of them.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_browser, from_browser)]
        command = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        options = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", CHROMIUM, *options],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (*ends, to_browser, from_browser):
            os.close(end)
        pages = [t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self.send("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._write)
        os.close(self._read)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            part = os.read(self._read, 1 << 20) if ready else b""
            assert part, "the browser went away or said nothing for a minute"
            self._unread += part
        text, self._unread = self._unread.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message.get("params", {})))
        return message

    def wait_for(self, method: str, **wanted: Any) -> dict[str, Any]:
        """Wait for an event with these parameters, also one that has come already."""
        seen = 0
        while True:
            for name, parameters in self.events[seen:]:
                if name == method and wanted.items() <= parameters.items():
                    return parameters
            seen = len(self.events)
            self._receive()

    def open(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size [CSS px] and wait until it has loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str, *, code: int, text: str = "", shift: bool = False) -> None:
        """Press and release a key, with its Windows key code."""
        common: dict[str, Any] = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def tab(self) -> None:
        """Press Tab."""
        self.press("Tab", code=9)

    def hover(self, selector: str) -> None:
        """Move the mouse to the middle of an element."""
        place = self.run(
            f"(() => {{const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])

    def download(self, selector: str, folder: Path) -> Path:
        """Click a link that is a download; the file when it has come."""
        folder.mkdir(exist_ok=True)
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True)
        self.events.clear()
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        begun = self.wait_for("Browser.downloadWillBegin")
        self.wait_for("Browser.downloadProgress", guid=begun["guid"], state="completed")
        return folder / begun["suggestedFilename"]

    def picture(self, path: Path, *, full: bool = True) -> Path:
        """Write a PNG of the whole page, or of the window."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full=full))
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _clip(self, *, full: bool) -> dict[str, Any]:
        if not full:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def paper(self, path: Path) -> Path:
        """Write the page as PDF, as it is printed."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"]))
        return path
