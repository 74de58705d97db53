"""What tests of loading share."""

from collections.abc import AsyncIterator

import pytest

from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.execution.room import Room
from workers.process.quarantine import CrashLedger


@pytest.fixture
async def loading() -> AsyncIterator[Loading]:
    """100 MiB in which everything may leave at once."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    room = Room(executor.usage, 100.0, min_residency_s=0.0)
    made = Loading(executor, ledger, 100.0, 1, room=room)
    yield made
    await executor.stop()
    made.shutdown()
