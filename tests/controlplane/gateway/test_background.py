"""What a gateway does beside its queries: what is away is logged once, and that it is over."""

import asyncio
import logging

import pytest

from controlplane.gateway import background
from controlplane.gateway.background import Background
from tests.controlplane.serving import until
from variants.errors import StateUnavailable

GONE = "the live state (Redis or Valkey) does not answer"


async def test_what_several_wait_for_is_logged_once_and_once_that_it_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "controlplane.gateway.background")
    monkeypatch.setattr(background, "AGAIN_S", 0.001)
    away, turns = True, {"_read": 0, "_report": 0}

    async def turn(name: str, detail: str) -> None:
        await asyncio.sleep(0.001)
        turns[name] += 1
        if away:
            raise StateUnavailable(f"{GONE}: {detail}")

    async def _read() -> None:
        await turn("_read", "Error 111")

    async def _report() -> None:
        await turn("_report", "it took 2 s")

    async def _follow_catalog() -> None:  # which is there all the time
        await asyncio.sleep(0.001)

    tasks = Background()
    tasks.repeat(_follow_catalog)
    tasks.repeat(_read)
    tasks.repeat(_report)
    await until(lambda: min(turns.values()) > 3)
    assert [one.getMessage() for one in caplog.records] == [
        f"going on with what is known: {GONE}: Error 111"
    ]
    away = False
    await until(lambda: len(caplog.records) > 1)
    await tasks.cancel()
    assert [one.getMessage() for one in caplog.records[1:]] == [f"over after 0 s: {GONE}"]
    assert caplog.records[1].levelname == "INFO"


class Follower:
    """Follows something that may be away, by a method of the same name as others have."""

    def __init__(self, *, away: bool) -> None:
        self.away = away
        self.turns = 0

    async def follow(self) -> None:
        await asyncio.sleep(0.001)
        self.turns += 1
        if self.away:
            raise StateUnavailable(f"{GONE}: no reply")


async def test_work_of_the_same_name_says_nothing_of_what_another_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "controlplane.gateway.background")
    monkeypatch.setattr(background, "AGAIN_S", 0.001)
    waits, file = Follower(away=True), Follower(away=False)
    tasks = Background()
    tasks.repeat(waits.follow)
    tasks.repeat(file.follow)
    await until(lambda: min(waits.turns, file.turns) > 3)
    assert len(caplog.records) == 1
    waits.away = False
    await until(lambda: len(caplog.records) > 1)
    await tasks.cancel()
    assert caplog.records[1].getMessage().startswith("over after")
