"""Rebuilding what workers find damaged: once each, one after the other."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.registry.rebuilds import Rebuilds, outcome
from controlplane.settings import load_settings
from tests.controlplane.fleet import eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

WHY = "its artifact 3fa4b2c19d0e is damaged"


class Told:
    """Events, and rebuilds whose child only writes down how it was called."""

    def __init__(self, folder: Path, body: dict[str, Any]) -> None:
        self.events: list[tuple[str, str, str]] = []
        self._calls = folder / "calls"
        script = folder / "child.py"
        script.write_text(
            "import os, sys, json\n"
            f"open({str(self._calls)!r}, 'a').write(json.dumps([*sys.argv[1:], "
            "os.environ['MODELLESS_STATE_DIR']]) + '\\n')\n"
            f"print({json.dumps(body)!r})\n"
        )
        self.rebuilds = Rebuilds(
            load_settings(state_dir=folder),
            lambda *event: self.events.append(event),
            command=(sys.executable, str(script)),
        )

    @property
    def calls(self) -> list[list[str]]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [json.loads(line) for line in lines]


def row(*, repaired: bool, message: str) -> dict[str, Any]:
    return {"artifact": "3fa4", "subjects": ["digits/a"], "repaired": repaired, "message": message}


DONE = {"repairs": [row(repaired=True, message="rebuilt from its source")]}


async def test_each_damage_is_repaired_once_in_a_child(tmp_path: Path) -> None:
    told = Told(tmp_path, DONE)
    for _ in range(3):
        told.rebuilds.look({"digits/b": WHY, "digits/a": WHY})
        await asyncio.sleep(0)
    await eventually(lambda: len(told.events) == 1)
    told.rebuilds.look({"digits/b": WHY})
    await eventually(lambda: len(told.events) == 2)
    told.rebuilds.look({"digits/b": WHY})
    await told.rebuilds.close()
    assert told.calls == [
        ["repair", "--output=json", "--progress=none", "--", "digits", name, str(tmp_path)]
        for name in ("a", "b")
    ]
    assert told.events == [
        ("artifact_rebuilt", f"digits/{name}", "rebuilt from its source") for name in ("a", "b")
    ]


async def test_what_is_damaged_again_is_repaired_again(tmp_path: Path) -> None:
    told = Told(tmp_path, DONE)
    for _ in range(2):
        told.rebuilds.look({"digits/a": WHY})
        await eventually(lambda: told.events)
        told.events.clear()
        told.rebuilds.look({})
    await told.rebuilds.close()
    assert len(told.calls) == 2


async def test_closing_ends_the_child(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    started = tmp_path / "started"
    script.write_text(
        "import os, pathlib, time\n"
        f"new = pathlib.Path({str(started)!r} + '.new')\n"
        "new.write_text(str(os.getpid()))\n"
        f"new.rename({str(started)!r})\n"
        "time.sleep(600)\n"
    )
    events: list[tuple[str, str, str]] = []
    rebuilds = Rebuilds(
        load_settings(state_dir=tmp_path),
        lambda *event: events.append(event),
        command=(sys.executable, str(script)),
    )
    rebuilds.look({"digits/a": WHY})
    await eventually(started.exists)
    async with asyncio.timeout(60):
        await rebuilds.close()
    assert not psutil.pid_exists(int(started.read_text()))
    assert events == []


@pytest.mark.parametrize(
    ("output", "said", "kind", "message"),
    [
        (json.dumps(DONE), "", "artifact_rebuilt", "rebuilt from its source"),
        (
            json.dumps({"repairs": [row(repaired=False, message="its source is missing")]}),
            "",
            "rebuild_failed",
            "its source is missing",
        ),
        (
            json.dumps({"repairs": []}),
            "",
            "rebuild_failed",
            "the artifact is sound where the control loop runs; the worker reads another file",
        ),
        (
            "",
            'noise\n{"error": "the database is gone", "code": "STATE_UNAVAILABLE"}\n',
            "rebuild_failed",
            "the database is gone",
        ),
        ("", "Killed", "rebuild_failed", "the process ended early; the log says more"),
    ],
)
def test_what_a_child_says_is_an_event(output: str, said: str, kind: str, message: str) -> None:
    found = outcome("digits/a", output.encode(), said.encode())
    assert found == (kind, "digits/a", message)
