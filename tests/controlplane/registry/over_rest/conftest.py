"""What tests of registrations over REST share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.registry.over_rest.room import Room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    yield room
    if room.registrations is not None:
        await room.registrations.close()
