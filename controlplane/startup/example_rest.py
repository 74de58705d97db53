"""The rest of the example family: made in a child process while the first models answer.

A first start makes the quickest models of the family before anything is answered (``FIRST``), and
what takes three quarters of the time afterwards. Training yields to queries; measuring is what it
is for any model that is registered beside a running installation.

``python -m controlplane.startup.example_rest`` is that child. Its settings are its environment, it
prints a JSON line for each model that answers, and it ends as soon as its standard input does: with
the process that started it, however that ended.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from controlplane.building.types import Progress, RegistrationResult
from controlplane.cluster.head import notes_of, store_of
from controlplane.registry.child_process import settings_environment
from controlplane.registry.example_models import ensure_digits, follow
from controlplane.settings import Settings, load_settings
from variants.catalog.sql import open_catalog
from variants.errors import ModellessError
from workers.process.niceness import HURRIES_NOT

FIRST = ("linear-pooled", "linear", "mlp-small", "mlp")
"""Trained and measured in a third of the time that all take. The last two are as accurate as the
first queries ask for that a reader of the README sends."""
FOLLOW = "follow: trained and measured while queries are answered"
"""What a start says of the others."""
ALL_THERE = "example: all of its models are there"
END_S = 3.0
"""How long the child may take to put away what it has begun."""
COMMAND = (sys.executable, "-P", "-m", "controlplane.startup.example_rest")

Tell = Callable[[str], None]


class RestOfExample:
    """The child process, from its start to its end."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ending = threading.Event()

    def begin(self, tell: Tell, warn: Tell) -> None:
        """Start it.

        Args:
            tell: told, from a thread, of each model that answers.
            warn: told why the rest was not made.

        Raises:
            OSError: no process can be started.
        """
        self._child = subprocess.Popen(
            self._command,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, **settings_environment(self._settings)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C is for `modelless up`, which ends this. In a session of its own it would have a
            # part of the cores of its own as well, whatever its niceness.
            process_group=0,
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._child, tell, warn), name="rest-of-example", daemon=True
        )
        self._reader.start()

    def end(self) -> None:
        """End it, if it runs still, and wait until it has."""
        self._ending.set()
        child = self._child
        if child is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(END_S)
        with suppress(BrokenPipeError):
            if child.stdin is not None:
                child.stdin.close()
        if self._reader is not None:
            self._reader.join(END_S)

    def _read(self, child: "subprocess.Popen[str]", tell: Tell, warn: Tell) -> None:
        assert child.stdout is not None

        def told(one: Progress) -> None:
            if not self._ending.is_set():
                tell(one.message)

        with child.stdout as lines:
            others = follow(lines, told)
        code = child.wait()
        if self._ending.is_set():
            return
        if not code:
            tell(ALL_THERE)
        else:
            why = " / ".join(others) or f"it ended with code {code}"
            warn(
                f"the rest of the example models was not made: {why};"
                " the next `modelless up --example digits` goes on"
            )


def main() -> None:
    """Make and register what is missing of the family."""
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _make()
    except KeyboardInterrupt:
        sys.exit(signal.SIGTERM)
    except ModellessError as error:
        sys.exit(error.message)


def _make() -> None:
    settings = load_settings()
    with closing(open_catalog(settings.catalog_url)) as catalog:
        ensure_digits(
            settings, catalog, store_of(settings), notes=notes_of(settings), niceness=HURRIES_NOT,
            registered=_say,
        )  # fmt: skip


def _say(result: RegistrationResult) -> None:
    models = ", ".join(version.model for version in result.versions)
    count = len(result.variants)
    message = f"example: {models} is trained and measured, {count} variants more"
    one = Progress(step="store", done=1, total=1, message=message)
    print(json.dumps(asdict(one)), flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_input() -> None:
    """End this process when its standard input has ended; what does not end in time is killed."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(END_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
