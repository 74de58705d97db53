"""What a worker says of itself: the same in both forms, little of it anew, and not too often."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.live_model import LiveModel, LivePoint
from tests.workers.builders import ask, config, echo_spec, row, running, until, vid
from workers.channel.messages import decode_status
from workers.host import WorkerHost
from workers.types import WorkerStatus

NOW: dict[str, Any] = {"idle_s": 0.0, "loaded_for_s": 0.0, "rate_qps": 0.0}
"""What goes on between two looks."""


def settled(status: WorkerStatus) -> dict[str, Any]:
    """What a status says of replicas, but for what goes on by itself."""
    return {str(one.variant): replace(one, **NOW) for one in status.replicas}


async def test_a_report_says_what_the_status_does(tmp_path: Path) -> None:
    async with running(config(tmp_path)) as (host, connection):
        for name in ("idle", "used", "checked"):
            await connection.load(echo_spec(variant=name), 60.0)
        for rows in (1, 1, 1):
            await ask(connection, echo_spec(variant="used"), rows * row(1))
        assert settled(decode_status(host.report())) == settled(host.status())
        await connection.check("task", "checked", 60.0)
        await connection.load(replace(echo_spec(variant="idle"), latency=((1, 7.0),)), 60.0)
        await connection.unload("task", "used", 60.0)
        told = settled(decode_status(host.report()))
        assert told == settled(host.status())
        assert told["checked"].checks > 0


async def test_what_is_learned_is_written_anew_only_of_what_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[LiveModel] = []

    def points(model: LiveModel) -> tuple[LivePoint, ...]:
        models.append(model)
        return points_of(model)

    points_of = LiveModel.points
    async with running(config(tmp_path)) as (host, connection):
        specs = [echo_spec(variant=name) for name in ("a", "b", "c")]
        for spec in specs:
            await connection.load(spec, 60.0)
        host.report()
        monkeypatch.setattr(LiveModel, "points", points)
        host.report()
        assert models == []
        await ask(connection, specs[1], row(1))
        host.report()
        host.report()
        assert models == [host._running().replicas[vid(specs[1])].model]


class Announced:
    """Counts the reports of a host, of which each takes as long as with some thousand variants."""

    def __init__(self, host: WorkerHost) -> None:
        self.reports = 0
        self._report = host._server.status
        host._server.status = self._counted

    def _counted(self) -> bytes:
        self.reports += 1
        time.sleep(0.02)
        return self._report()


async def test_changes_are_told_together_where_telling_takes_long(tmp_path: Path) -> None:
    async with running(config(tmp_path)) as (host, connection):
        announced = Announced(host)
        for n in range(20):
            await connection.load(echo_spec(variant=f"v{n}", memory_mib=1.0), 60.0)
            await asyncio.sleep(0.01)
        assert announced.reports < 10, "each load changes twice what there is to tell"
        await until(lambda: len(connection.status.replicas) == 20)


async def test_that_a_worker_leaves_is_told_at_once(tmp_path: Path) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(echo_spec(), 60.0)
        announced = Announced(host)
        await until(lambda: announced.reports)  # of the last change, and it rests now
        told = announced.reports
        await connection.drain(60.0)
        assert announced.reports == told + 1
        assert connection.status.draining
