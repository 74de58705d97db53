"""Fixtures that tests of the control plane share."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.live_state import LiveState
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.api.applications import share_validators
from tests.ports import free_port

share_validators()


@pytest.fixture(scope="session")
def live_url() -> Iterator[str]:
    """An embedded Valkey, started once."""
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
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
