"""A gateway whose database takes its time: what does not ask it goes on."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from tests.controlplane.serving import FAST, query, serving
from variants.catalog.protocol import Marks

ASKED = 40
"""More than the threads that asyncio has by itself, on whatever machine."""


async def test_metrics_are_read_while_the_database_hangs(
    short_folder: Path, live_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say that it does. Each reader of the control API waits for it in a thread."""
    goes_on = Event()
    async with serving(short_folder, live_url) as served:
        await served.worker("w1", FAST)
        catalog = served.gateway.catalog
        marks, waiting = catalog.marks(), 0

        def hangs() -> Marks:
            nonlocal waiting
            waiting += 1
            goes_on.wait(60)
            return marks

        monkeypatch.setattr(catalog, "marks", hangs)
        readers = [asyncio.create_task(served.get("/v1/tasks")) for _ in range(ASKED)]
        try:
            while not waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            async with asyncio.timeout(30):
                assert (await served.get("/metrics")).status == 200
            assert (await served.ask(query(1))).status == 200
        finally:
            goes_on.set()
        assert {(await one).status for one in readers} == {200}
