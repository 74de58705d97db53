"""A page as a browser shows it: Chromium without a window.

One Chromium serves the tests of a folder, since starting one takes most of a second of processor
time. Each tab has a profile of its own. It is spoken to in the DevTools protocol over two pipes:
JSON texts, each ended by a zero byte. Without Chromium tests skip at home and fail in CI.

Debian has a Chromium that knows no windows at all, ``chromium-headless-shell``. Tests take half of
the processor time with it, because the other one keeps a window for each tab, which nobody sees.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any, NamedTuple, Self

import psutil

from tests.services import missing, short_folder

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "chrome")
"""What it may be called; the quickest first."""
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE_S = 30.0
"""How long Chromium may take to end, and a page until it shows what is waited for."""
SILENT_S = 300.0
"""How long Chromium may say nothing while it is asked, on a machine that others keep busy."""
BUDGET_MS = 8_000
"""How far the clock of a page goes that is shown; it stands still while the page waits for data."""


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


class Chromium:
    """A Chromium without a window, and what it tells of its tabs."""

    def __init__(self) -> None:
        self._with = ExitStack()
        folder = self._with.enter_context(short_folder("modelless-browser-"))
        theirs, self._ours = os.pipe()
        self._replies, their_replies = os.pipe()
        # Above the two numbers that Chromium reads and writes, so that neither covers the other.
        given = [fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in (theirs, their_replies)]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{given[0]} 4>&{given[1]}', "chromium",
             need_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", f"--user-data-dir={folder}",
             "--remote-debugging-pipe", "about:blank"],
            pass_fds=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for one in (theirs, their_replies, *given):
            os.close(one)
        self._unread = b""
        self._calls = 0
        self.told: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        """Events of each tab, by its session, the earliest first."""

    def close(self) -> None:
        """End it, with the processes that it started, which write into its folder."""
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._ours)
        os.close(self._replies)
        for one in started:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        end_s = time.monotonic() + PATIENCE_S
        while not all(map(_ended, started)) and time.monotonic() < end_s:
            time.sleep(0.01)
        self._with.close()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a method, of a tab or of the browser itself."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        if session is not None:
            call["sessionId"] = session
        os.write(self._ours, json.dumps(call).encode() + b"\0")
        while (told := self._next()).get("id") != self._calls:
            self._keep(told)
        assert "error" not in told, (method, told["error"])
        result: dict[str, Any] = told["result"]
        return result

    def wait_for(self, session: str, event: str) -> None:
        """Return once a tab has told an event."""
        while all(told["method"] != event for told in self.told[session]):
            self._keep(self._next())

    def _keep(self, told: dict[str, Any]) -> None:
        if "method" in told:
            self.told[told.get("sessionId", "")].append(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select([self._replies], [], [], SILENT_S)[0], (
                "Chromium has said nothing for long"
            )
            part = os.read(self._replies, 1 << 16)
            assert part, "Chromium has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        return told


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


_running: list[Chromium] = []
"""The one of this process, once a test has needed it."""


@contextmanager
def one_browser() -> Iterator[None]:
    """Tabs that are opened meanwhile share a Chromium, which ends afterwards."""
    yield
    while _running:
        _running.pop().close()


class Tab:
    """A tab with a profile of its own."""

    def __init__(
        self, folder: Path, *, width: int = 1280, height: int = 1000, dark: bool = False
    ) -> None:
        """``folder`` takes what the page has the browser keep as a file."""
        self.folder = folder
        self.size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._scheme = "dark" if dark else "light"

    def __enter__(self) -> Self:
        if not _running:
            _running.append(Chromium())
        self.browser = _running[0]
        context = self.browser.call("Target.createBrowserContext")["browserContextId"]
        self._context = {"browserContextId": context}
        self.browser.call(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(self.folder),
            **self._context,
        )
        target = self.browser.call("Target.createTarget", url="about:blank", **self._context)
        found = self.browser.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self.session: str = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", **self.size)
        scheme = {"name": "prefers-color-scheme", "value": self._scheme}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def __exit__(self, *_: object) -> None:
        self.browser.call("Target.disposeBrowserContext", **self._context)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of this tab."""
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives in the page, as JSON has it."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    @property
    def errors(self) -> list[str]:
        """What scripts of the page have thrown and not caught."""
        thrown = [
            told["params"]["exceptionDetails"]
            for told in self.browser.told[self.session]
            if told["method"] == "Runtime.exceptionThrown"
        ]
        return [one.get("exception", {}).get("description", one["text"]) for one in thrown]

    @property
    def console(self) -> list[str]:
        """What the page wrote to its console, and what the browser wrote there of it."""
        lines = self.errors
        for told in self.browser.told[self.session]:
            if told["method"] == "Log.entryAdded":
                lines.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.consoleAPICalled":
                lines.append(json.dumps(told["params"]["args"]))
        return lines


def show(url: str, folder: Path, *, dark: bool = False) -> Shown:
    """Open a page and wait until nothing more happens."""
    with Tab(folder, width=1180, dark=dark) as tab:
        tab.call("Emulation.setVirtualTimePolicy", policy="pause")
        tab.call("Page.navigate", url=url)
        tab.call(
            "Emulation.setVirtualTimePolicy",
            policy="pauseIfNetworkFetchesPending",
            budget=BUDGET_MS,
        )
        tab.browser.wait_for(tab.session, "Emulation.virtualTimeBudgetExpired")
        page: str = tab.value("document.documentElement.outerHTML")
        console = tab.console
    found = re.search(r"<body\b[^>]*>(.*?)(?:<script|$)", page, re.DOTALL)
    assert found is not None, f"{url} has no body: {page[:200]}"
    return Shown(found[1], console)
