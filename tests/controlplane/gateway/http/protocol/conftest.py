"""A real server on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.gateway.query import query_context
from tests.controlplane.gateway.http.protocol.asked import MAX_BODY
from tests.controlplane.serving import FAST, LATE, Served, serving


@pytest.fixture
async def served(
    short_folder: Path, live_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    """One worker with an instant and a slow variant; bodies of at most 256 KiB."""
    # A machine may stand still for a second between two queries.
    monkeypatch.setattr(query_context, "PRESSED_MS", 3_600_000.0)
    async with serving(short_folder, live_url, max_body_mib=MAX_BODY / 2**20) as running:
        await running.worker("w1", FAST, LATE)
        yield running
