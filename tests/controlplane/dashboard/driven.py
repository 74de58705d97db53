"""A tab that a test drives: it waits, points and measures while the page lives."""

import base64
import time
from pathlib import Path
from typing import Any, Self

from tests.controlplane.dashboard.browser import PATIENCE_S, Tab


class Driven(Tab):
    """One tab of a Chromium without a window."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.call("Emulation.setScrollbarsHidden", hidden=True)  # as on a phone
        return self

    def open(self, url: str) -> None:
        """Go to a page and wait for its scripts; what they ask for may not be there yet."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression as soon as it is true of the page."""
        end = time.monotonic() + PATIENCE_S
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.1)
        return found

    def point(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path) -> None:
        """Write the whole page, as it would be seen in a window of its height, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        self.call("Emulation.setDeviceMetricsOverride", **{**self.size, "height": size["height"]})
        time.sleep(0.3)  # what depends on the size is drawn again
        png = self.call("Page.captureScreenshot", format="png")["data"]
        self.call("Emulation.setDeviceMetricsOverride", **self.size)
        path.write_bytes(base64.b64decode(png))
