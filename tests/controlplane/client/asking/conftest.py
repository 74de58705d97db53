"""A gateway with a token."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.client.asking.asked import TOKEN
from tests.controlplane.serving import FAST, LATE, SLOW, Served, serving


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """One worker that holds an instant, a slow and a late variant."""
    async with serving(short_folder, live_url, api_token=TOKEN) as running:
        await running.worker("w1", FAST, SLOW, LATE)
        yield running
