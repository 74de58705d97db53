"""What tests of a worker's executor share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.workers.builders import config
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.execution.room import Room
from workers.process.quarantine import CrashLedger
from workers.types import WorkerConfig


@pytest.fixture
def worker(tmp_path: Path) -> WorkerConfig:
    return config(tmp_path)


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
