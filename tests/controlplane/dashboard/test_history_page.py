"""What the page draws of the last hour, in a real browser over a real gateway."""

import asyncio
import re
from pathlib import Path
from time import time

import pytest
from redis import asyncio as aioredis

from controlplane.live_state import LiveState
from controlplane.views.history import slot_of
from tests.controlplane.dashboard.browser import need_browser, show
from tests.controlplane.serving import FAST, serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("intervals", "times"),
    [(18, r"\b\d\d:\d\d\b(?!:)"), (2, r"\b\d\d:\d\d:\d\d\b")],
    ids=["minutes", "seconds"],
)
async def test_the_last_hour_is_drawn_once_something_was_asked(
    short_folder: Path, live_url: str, tmp_path: Path, intervals: int, times: str
) -> None:
    """With times below it, however little of the hour there is."""
    need_browser()
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", FAST)
        url = f"http://127.0.0.1:{running.port}/#letters"
        async with aioredis.Redis.from_url(live_url) as client:
            await client.delete("modelless:history")  # that other tests have left
        before = await asyncio.to_thread(show, url, tmp_path / "a")
        assert 'id="history-part" hidden' in before.body

        live = LiveState(live_url)
        told = {"met": 30, "missed": 4, "infeasible_answered": 0, "errors": {"OVERLOADED": 6}}
        took = {"latencies": [[1.0, 2.0, 34]], "accuracy": [30.6, 34]}
        for back in range(2, 2 + intervals):
            sample = {"slot": slot_of(time()) - back, "tasks": {"letters": told | took}}
            await live.put_history(sample)
        await live.close()
        page = await asyncio.to_thread(show, url, tmp_path / "b")

    assert page.console == []
    assert 'id="history-part" hidden' not in page.body
    assert "The last hour letters in time late refused p50 p95" in page.text
    assert "Queries per second" in page.text
    assert "Mean accuracy" in page.text
    history = page.body.split('id="history-part"')[1].split("</section>")[0]
    assert re.search(times, re.sub(r"<title>.*?</title>", "", history))
    assert not re.search(r">\d,\d{3},\d{3}", history)
