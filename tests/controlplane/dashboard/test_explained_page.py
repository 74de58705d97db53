"""What the page says of a query that was asked about, or that it asks, in a real browser over a
real gateway."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.controlplane.dashboard.browser import Shown, need_browser, show
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.serving import FAST, LATE, SLOW, Served, serving
from variants.types import ImageScale, TaskName

pytestmark = pytest.mark.slow

CHOOSE = """
    (bytes => {
        const chosen = new DataTransfer();
        const content = Uint8Array.from(atob(bytes), c => c.charCodeAt(0));
        chosen.items.add(new File([content], "a.png", { type: "image/png" }));
        $("picture-file").files = chosen.files;
        $("picture-file").dispatchEvent(new Event("change"));
        return 1;
    })
"""


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    need_browser()
    async with serving(short_folder, live_url) as running:
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


def chosen(url: str, folder: Path, file: bytes) -> tuple[str, list[str]]:
    """What the page says once the file was chosen, and what it wrote to the console."""
    with Driven(folder) as tab:
        tab.open(url)
        tab.wait_for("!$('ask').hidden && !$('picture').hidden")
        tab.value(f"{CHOOSE}('{base64.b64encode(file).decode()}')")
        said = tab.wait_for("(text => text.length > 1 && text)($('picture-said').textContent)")
        return str(said), tab.errors


async def test_the_answer_to_a_chosen_picture_is_shown(served: Served, tmp_path: Path) -> None:
    letters = TaskName("letters")
    scale = ImageScale(std=(0.5,))
    served.gateway.catalog.change_tasks(
        [letters], lambda one: replace(one, image=scale, slo=replace(one.slo, latency_ms=30_000.0))
    )
    async with asyncio.timeout(30):
        while served.gateway.path.tasks[letters].image != scale:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    made = io.BytesIO()
    Image.new("L", (2, 2), 200).save(made, "PNG")
    url = f"http://127.0.0.1:{served.port}/#letters"

    said, errors = await asyncio.to_thread(chosen, url, tmp_path / "one", made.getvalue())
    assert f", by {FAST} in " in said
    assert errors == []
    refused, _ = await asyncio.to_thread(chosen, url, tmp_path / "two", b"no picture")
    assert refused == "INVALID_INPUT: the body is no image of these formats: PNG, JPEG"
