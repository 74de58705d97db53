"""A page as a browser shows it: Chromium without a window.

Without Chromium tests skip at home and fail in CI.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.services import missing

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


class Shown(NamedTuple):
    """A page after its scripts have run."""

    body: str
    """The markup of its body up to its first script."""
    console: list[str]
    """What it wrote to the console: errors of scripts, and what the content policy forbade."""

    @property
    def text(self) -> str:
        """The body's text, in one line."""
        return " ".join(re.sub(r"<[^>]+>", " ", self.body).split())


def need_browser() -> str:
    """Where Chromium is; without it the test skips, or fails in CI."""
    if BROWSER is None:
        missing("Chromium")
    return BROWSER


def show(url: str, folder: Path, *, dark: bool = False) -> Shown:
    """Open a page and wait until nothing more happens; the browser keeps its files in a folder."""
    done = subprocess.run(
        [need_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", f"--user-data-dir={folder / 'browser'}", "--window-size=1180,1000",
         "--virtual-time-budget=8000", "--enable-logging=stderr",
         *(["--blink-settings=preferredColorScheme=0"] if dark else []), "--dump-dom", url],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found = re.search(r"<body\b[^>]*>(.*?)(?:<script|$)", done.stdout, re.DOTALL)
    assert found is not None, f"{url} has no body: {done.stdout[:200]}"
    body = found[1]
    return Shown(body, [line for line in done.stderr.splitlines() if ":CONSOLE" in line])
