"""Two Ray clusters of one installation, as an upgrade by KubeRay's default has them for a while.

The second cluster starts beside the first, queries are led to it, and the first one ends. Both have
one database, one Redis and one claim.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import ray_service
from tests.integration.deployment import BUSY, Load, Service
from tests.integration.digits import GOOD
from tests.integration.machines.kuberay import KubeRay, Place, one_of_each, told
from tests.integration.machines.lab import Reached, lab, register

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

AFTER = Place(
    uid="the-uid-of-the-next-cluster",
    first=6,
    control_store=6_479,
    dashboard=8_365,
    client_server=10_101,
    metrics=44_317,
    http=8_100,
    grpc=8_101,
)


@pytest.fixture
def clusters(family: Path) -> Iterator[tuple[KubeRay, KubeRay]]:
    """The first one, which answers, and the second, of which the head runs alone."""
    spec = one_of_each(ray_service())
    with lab() as made:
        first = KubeRay(made, spec=spec)
        second = None
        try:
            first.start()
            gateway = _ready(first)
            operation = register(gateway, family, "mlp-small")
            assert operation["state"] == "succeeded", operation
            gateway.until(lambda: gateway.query([[0.0] * 64]).status == 200, "an answer")
            second = KubeRay(made, place=AFTER, secrets=first.secrets, spec=spec)
            yield first, second
        finally:
            first.stop()
            if second is not None:
                second.stop()


def _ready(cluster: KubeRay) -> Reached:
    """Its gateway, once it takes requests."""
    [gateway] = cluster.of("gateway")
    try:
        cluster.dashboard().until(gateway.is_ready, "the gateway is ready")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(cluster.applications())}") from error
    return cluster.service()


def _events(gateway: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.get("/v1/events?limit=1000")["events"]
    return found


def _leads(gateway: Service) -> list[str]:
    return [one["subject"] for one in _events(gateway) if one["kind"] == "controller_started"]


def _holds(gateway: Service) -> bool:
    """Whether a worker of the cluster that leads now holds a variant."""
    return any(gateway.ready(worker) for worker in gateway.workers())


def test_no_query_is_lost_while_another_cluster_takes_the_place_of_the_first(
    clusters: tuple[KubeRay, KubeRay],
) -> None:
    first, second = clusters
    gateway = first.service()
    old_workers = {worker["worker"] for worker in gateway.workers()}
    with Load(gateway, GOOD, clients=2, pause_s=0.2) as before:
        gateway.until(lambda: before.snapshot()["200"] > 20, "load")
        second.start()
        arrived = _ready(second)
        arrived.until(lambda: _leads(arrived) == ["epoch 2", "epoch 1"], "the newer one leads")
        arrived.until(lambda: arrived.query([[0.0] * 64]).status == 200, "an answer there")
        arrived.until(
            lambda: {one["worker"] for one in arrived.workers()} - old_workers and _holds(arrived),
            "a worker of the newer one holds the model",
        )
        # Both answer, for as long as clients may take to go over.
        with Load(arrived, GOOD, clients=2, pause_s=0.2) as after:
            both = before.snapshot()["200"]
            gateway.until(lambda: after.snapshot()["200"] > 50, "load of the newer one")
            gateway.until(lambda: before.snapshot()["200"] > both + 50, "load of the older one")
    assert before.untyped == after.untyped == []
    assert {*before.outcomes, *after.outcomes} <= {"200", *BUSY}

    # Queries are led to the second one, and the first one is deleted.
    arrived.client = second.of("cpu-4")[0].machine
    with Load(arrived, GOOD, clients=2, pause_s=0.2) as alone:
        arrived.until(lambda: alone.snapshot()["200"] > 20, "load")
        with ThreadPoolExecutor() as threads:
            list(threads.map(first.end, tuple(first.pods)))
        ended = alone.snapshot()["200"]
        arrived.until(lambda: alone.snapshot()["200"] > ended + 100, "queries go on")
        arrived.until(
            lambda: not {one["worker"] for one in arrived.workers()} & old_workers,
            "workers are left",
        )
    assert alone.untyped == []
    assert {*alone.outcomes} <= {"200", *BUSY}

    kinds = [one["kind"] for one in _events(arrived)]
    assert kinds.count("controller_started") == 2, "who leads changes once"
    assert [kind for kind in kinds if kind in ("worker_lost", "gateway_lost")] == []
    assert "gateways_scaled" not in kinds, "each cluster has as many gateways as it is to have"
