"""A browser that a test drives: it waits, points and measures while the page lives.

It speaks the DevTools protocol with Chromium over two pipes: JSON texts, each ended by a zero byte.
"""

import base64
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.controlplane.dashboard.browser import need_browser

PATIENCE_S = 30.0
"""How long a page may take until it shows what is waited for."""


class Driven:
    """One tab of a Chromium without a window."""

    def __init__(
        self, folder: Path, *, width: int = 1280, height: int = 1000, dark: bool = False
    ) -> None:
        self.folder = folder
        self.errors: list[str] = []
        """What scripts of the page have thrown and not caught."""
        self._size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._scheme = "dark" if dark else "light"
        self._calls = 0
        self._session: str | None = None

    def __enter__(self) -> Self:
        theirs, self._ours = os.pipe()
        self._replies, their_replies = os.pipe()
        # Above the two numbers that Chromium reads and writes, so that neither covers the other.
        given = [fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in (theirs, their_replies)]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{given[0]} 4>&{given[1]}', "chromium",
             need_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", f"--user-data-dir={self.folder / 'driven'}",
             "--remote-debugging-pipe", "about:blank"],
            pass_fds=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for one in (theirs, their_replies, *given):
            os.close(one)
        self._unread = b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        self._call("Page.enable")
        self._call("Runtime.enable")
        self._call("Emulation.setDeviceMetricsOverride", **self._size)
        self._call("Emulation.setScrollbarsHidden", hidden=True)  # as on a phone
        scheme = {"name": "prefers-color-scheme", "value": self._scheme}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._ours)
        os.close(self._replies)

    def open(self, url: str) -> None:
        """Go to a page and wait for its scripts; what they ask for may not be there yet."""
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives in the page, as JSON has it."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression as soon as it is true of the page."""
        end = time.monotonic() + PATIENCE_S
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.1)
        return found

    def point(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path) -> None:
        """Write the whole page, as it would be seen in a window of its height, as PNG."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        self._call("Emulation.setDeviceMetricsOverride", **{**self._size, "height": size["height"]})
        time.sleep(0.3)  # what depends on the size is drawn again
        png = self._call("Page.captureScreenshot", format="png")["data"]
        self._call("Emulation.setDeviceMetricsOverride", **self._size)
        path.write_bytes(base64.b64decode(png))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._ours, json.dumps(call).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("method") == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if told.get("id") == self._calls:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = os.read(self._replies, 1 << 16)
            assert part, "Chromium has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        return told
