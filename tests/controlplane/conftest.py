"""Fixtures that tests of the control plane share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.live_state import LiveState
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.api.applications import share_validators
from tests.controlplane.serving import Served, serving
from tests.ports import free_port

share_validators()


def _short_folder() -> TemporaryDirectory[str]:
    """A socket's path may hold 107 bytes, too few for one in a test's own folder."""
    return TemporaryDirectory(prefix="ml-", dir="/tmp")


@pytest.fixture(scope="session")
def live_url() -> Iterator[str]:
    """An embedded Valkey, started once."""
    with _short_folder() as folder:
        valkey = EmbeddedValkey(Path(folder))
        valkey.start()
        try:
            yield valkey.url
        finally:
            valkey.stop()


@pytest.fixture(autouse=True)
def patient_live_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways and control loops wait 60 s instead of 2 for a reply of the live state.

    A machine that stands still for 2 s has not lost it. One that is killed is told at once.
    """
    monkeypatch.setattr(LiveState.__init__, "__kwdefaults__", {"timeout_s": 60.0})


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    return free_port()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path so short that sockets can be in it."""
    with _short_folder() as folder:
        yield Path(folder)


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """A gateway over a filled catalog, without workers yet."""
    async with serving(short_folder, live_url) as running:
        yield running
