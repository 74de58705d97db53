"""Workers that tests fork: they end as processes of their own do."""

import json
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.workers.builders import config
from tests.workers.forked import Forked, worker

pytestmark = pytest.mark.slow


async def started(folder: Path) -> Forked:
    """One that has told its address."""
    child = await worker("--id", "w1", "--config", json.dumps(asdict(config(folder))))
    assert (await child.stdout.readline()).startswith(b"unix:")
    assert child.returncode is None
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
async def test_how_a_worker_ended_is_told(tmp_path: Path, number: int, code: int) -> None:
    child = await started(tmp_path)
    child.send_signal(number)
    assert await child.wait() == child.returncode == code
    assert await child.stdout.read() == b""
    with pytest.raises(ProcessLookupError):
        child.kill()


async def test_one_that_cannot_start_says_nothing_and_ends_with_an_error() -> None:
    child = await worker("--id", "w1")
    assert await child.stdout.read() == b""
    assert await child.wait() == 2
