"""How far away a gateway takes its workers to be, with zones and without."""

from pathlib import Path

import pytest

from controlplane.gateway.connected_workers import ConnectedWorkers
from controlplane.gateway.renewal import Renewal
from tests.workers.builders import config, running, secret_of, until
from tests.workers.channel.detour import Detour
from variants.types import WorkerId

FAR = WorkerId("w1")


@pytest.mark.parametrize(("zone", "counts"), [("", False), ("edge", True)])
async def test_the_way_counts_between_zones_only(tmp_path: Path, zone: str, counts: bool) -> None:
    worker = config(tmp_path)
    async with running(worker) as (_, near), Detour(30.0) as detour:
        workers = ConnectedWorkers(
            secret_of(worker), 64, Renewal(lambda: None), lambda worker: None, zone=zone
        )
        workers.listed({FAR: (address := detour.to(near.address))})
        await workers.connect(FAR, address)
        before = workers[FAR].view.return_ms
        assert not workers.measure()
        trip = workers.connections[FAR].round_trip
        if counts:
            await until(lambda: trip.known)
        assert (workers.connections[FAR]._measured is None) is True
        assert workers.measure() is counts
        assert (workers[FAR].view.round_trip_ms >= 30.0) is counts
        assert (workers[FAR].view.return_ms > before) is counts
        assert (workers.round_trips_ms()[""] > 0.0) is counts
        workers.close()
