"""Fixtures that tests of workers share."""

from collections.abc import Iterator

import pytest

from tests.workers import gated
from workers.runtimes.registry import RUNTIMES


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Iterator[gated.Gates]:
    """What the runtime ``gated`` waits for, which is known in this process as long as this is."""
    runtimes = {**RUNTIMES, "gated": gated.ENTRY}
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", runtimes)
    yield gated.GATES
    gated.GATES.open()
