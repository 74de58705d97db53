"""When a gateway has its workers tell of their queues, and what it makes of who asks them."""

import asyncio
from math import inf
from pathlib import Path

import pytest

from controlplane.gateway.connected_workers import ConnectedWorkers
from controlplane.gateway.renewal import Renewal
from controlplane.settings import load_settings
from planner.selection.open_batches import TOLD_EVERY_MS
from planner.types import QueueNews, WorkerView
from tests.controlplane.serving import LATE, TASK, QuickGateway, query, serving
from tests.ports import free_port
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
        found.view.given(1.0, found.connection._loop.time() * 1_000)
        await ask(found.connection, echo_spec(), row(1))


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


async def test_a_gateway_knows_the_batch_that_forms_of_anothers_queries(
    short_folder: Path, live_url: str
) -> None:
    """The worker's profile promises 1 ms for batches of 150, so queries wait in several batches."""
    async with serving(short_folder, live_url, objective="accuracy") as served:
        await served.worker("w1", LATE)
        one = served.gateway
        given = load_settings(
            state_dir=served.folder, port=free_port(), redis_url=live_url, grpc_port=0,
            objective="accuracy",
        )  # fmt: skip
        other = QuickGateway(given, one.catalog, one.store, secret_of(config(served.folder)))
        await other.start()
        served.stack.push_async_callback(other.stop)
        await until(lambda: set(other.known.workers) == {W})
        stopped = False

        async def ask_on() -> None:
            while not stopped:
                assert (await served.ask(query(variant=LATE))).status == 200

        asking = [asyncio.create_task(ask_on()) for _ in range(20)]
        path = other.path
        await until(lambda: path.congestion.batches.of(TASK.name, path.clock_ms()))
        view = other.known.workers[W].view
        assert view.given_ms == -inf, "it has sent nothing itself"
        assert view.shared
        stopped = True
        await asyncio.gather(*asking)
