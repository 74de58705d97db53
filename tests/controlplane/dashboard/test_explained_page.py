"""What the page says of a query that was asked about, in a real browser over a real gateway."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.controlplane.dashboard.browser import Shown, need_browser, show
from tests.controlplane.serving import FAST, LATE, SLOW, Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture
async def served(live_url: str) -> AsyncIterator[Served]:
    need_browser()
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url) as running:
            await running.worker("w1", FAST, SLOW, LATE)
            yield running


async def shown(served: Served, asked: str, folder: Path) -> Shown:
    url = f"http://127.0.0.1:{served.port}/#{asked}"
    page = await asyncio.to_thread(show, url, folder)
    assert page.console == []
    return page


async def test_a_link_asks_what_would_answer(served: Served, tmp_path: Path) -> None:
    page = await shown(served, "letters?accuracy=97.5", tmp_path)

    assert f"{SLOW} on w1 : the cheapest that fits." in page.text
    assert f"→ {SLOW} cpu-1 the cheapest that fits 99.00 %" in page.text
    assert f"✗ {FAST} cpu-1 accuracy 90.00 % &lt; 97.50 % 90.00 %" in page.text


@pytest.mark.campaign
async def test_a_refusal_says_what_is_in_the_way(served: Served, tmp_path: Path) -> None:
    page = await shown(served, "letters?latency_ms=0,5&accuracy=99", tmp_path)

    assert "SLO_INFEASIBLE : no variant of 'letters' can meet the SLO" in page.text
    assert f"✗ {SLOW} cpu-1" in page.text
    assert f"→ {SLOW}" not in page.text


@pytest.mark.campaign
async def test_what_is_no_number_is_not_sent(served: Served, tmp_path: Path) -> None:
    page = await shown(served, "letters?latency_ms=soon", tmp_path)

    assert "“soon” is no number." in page.text


async def test_nothing_is_asked_before_somebody_asks(served: Served, tmp_path: Path) -> None:
    page = await shown(served, "letters", tmp_path)

    assert "What would answer" in page.text
    assert "the cheapest that fits" not in page.text
