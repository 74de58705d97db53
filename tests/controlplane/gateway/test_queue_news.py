"""When a gateway has its workers tell of their queues, and what it makes of who asks them."""

from pathlib import Path

import pytest

from controlplane.gateway.connected_workers import ConnectedWorkers
from controlplane.gateway.renewal import Renewal
from planner.selection.open_batches import TOLD_EVERY_MS
from planner.types import QueueNews, WorkerView
from tests.workers.builders import ask, config, echo_spec, row, running, secret_of, until
from variants.types import Prefer, WorkerId
from workers.types import WorkerConfig

W = WorkerId("w1")


class Gateway:
    """The connections of one gateway, and what its worker has told it of its queue."""

    def __init__(self, worker: WorkerConfig, prefer: Prefer) -> None:
        self.told: list[tuple[WorkerView, QueueNews]] = []
        self.workers = ConnectedWorkers(
            secret_of(worker), 64, Renewal(lambda: None), lambda worker: None,
            prefer=prefer, told=lambda view, news: self.told.append((view, news)),
        )  # fmt: skip

    async def connect(self, address: str) -> None:
        self.workers.listed({W: address})
        await self.workers.connect(W, address)

    async def ask(self) -> None:
        """A query, as the query path sends it."""
        found = self.workers[W]
        await ask(found.connection, echo_spec(), row(1))
        found.view.given(1.0, found.connection._loop.time() * 1_000)


@pytest.mark.parametrize("prefer", [Prefer.ACCURACY, Prefer.COST])
async def test_a_gateway_follows_queues_as_it_helps_with_others_and_alone(
    tmp_path: Path, prefer: Prefer
) -> None:
    worker = config(tmp_path)
    async with running(worker) as (host, connection):
        await connection.load(echo_spec(), 60.0)
        one, other = Gateway(worker, prefer), Gateway(worker, prefer)
        await one.connect(connection.address)
        view = one.workers[W].view
        assert not view.shared  # nobody has asked yet

        await one.ask()
        assert bool(one.told) is (prefer is Prefer.ACCURACY)
        assert all(of is view for of, _ in one.told)
        host._server.announce()
        await until(lambda: one.workers[W].connection.status.askers == 1)
        assert not view.shared
        assert not host._server.followed

        await other.connect(connection.address)
        await other.ask()
        host._server.announce()
        await until(lambda: view.shared)
        await until(lambda: host._server.followed)
        wanted = {peer.wanted for peer in host._server.peers if peer.wanted.every_s}
        assert wanted == {(prefer is Prefer.ACCURACY, TOLD_EVERY_MS / 1_000)}
        known = len(one.told)
        await other.ask()
        await until(lambda: len(one.told) > known)

        other.workers.close()
        await one.ask()
        await until(lambda: not view.shared)
        one.workers.close()
