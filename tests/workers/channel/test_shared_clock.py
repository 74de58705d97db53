"""Deadlines between processes that read one clock."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workers.builders import config, echo_spec, row, running, vid
from workers import host
from workers.channel import shared_clock
from workers.channel.reply import Reply
from workers.channel.shared_clock import LONGEST_US, clock_name, left_us, moment_us
from workers.types import ReplyCode

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux names its clock"
)


@linux
def test_all_processes_of_a_machine_name_one_clock() -> None:
    code = "from workers.channel.shared_clock import clock_name; print(clock_name())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == clock_name() != ""


@pytest.mark.parametrize("now_us", [0, 2**32 - 5, 2**32 + 7, 10**15])
def test_a_moment_is_as_far_away_as_its_budget(
    now_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_us * 1_000)
    for budget_us in (0, 1, 30_000, LONGEST_US):
        moment = moment_us(budget_us)
        assert 0 <= moment < 2**32
        assert left_us(moment) == budget_us
    moment = moment_us(10)
    monkeypatch.setattr(time, "monotonic_ns", lambda: (now_us + 11) * 1_000)
    assert left_us(moment) == 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: (now_us + 2**31) * 1_000)
    assert left_us(moment) == 0


@linux
@pytest.mark.parametrize("one_clock", [True, False], ids=["one clock", "another clock"])
async def test_time_in_the_socket_counts(
    tmp_path: Path, one_clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not read for longer than the query has time."""
    if not one_clock:
        monkeypatch.setattr(host, "clock_name", lambda: "of another machine")
    spec = echo_spec()
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection.infer(vid(spec), 1, 200_000, row(1), reply.set_result)
        await asyncio.sleep(0)  # it is sent
        time.sleep(0.4)  # noqa: ASYNC251
        code = (await asyncio.wait_for(reply, 10.0)).code
        assert (code is ReplyCode.OK) == (not one_clock)


@linux
@pytest.mark.parametrize("unknown", [OSError, PermissionError])
def test_where_nothing_is_known_budgets_are_told(
    unknown: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Path) -> str:
        raise unknown

    monkeypatch.setattr(Path, "read_text", unreadable)
    clock_name.cache_clear()
    try:
        assert shared_clock.clock_name() == ""
    finally:
        monkeypatch.undo()
        clock_name.cache_clear()
