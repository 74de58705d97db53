"""Profiles that are far from the truth, over real workers, a control loop and two gateways.

What a profile says too much of is found out although all its queries are refused, and what it says
too little of by the first batches; either reaches every gateway, every worker and the plan.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from controlplane.gateway.gateway import Gateway
from tests.controlplane.fleet import Fleet, eventually, fleet, gateway
from tests.ports import free_port
from variants.types import ReplicaState, VariantName
from workers.types import ReplicaStatus

pytestmark = pytest.mark.slow

A = VariantName("a-v1-echo-fp32")
BEING_CHECKED = "by a profile that is being checked"


def falsify(it: Fleet, took_ms: float) -> None:
    """Have the profile say that any batch takes so long."""
    [known] = it.catalog.snapshot().profiles
    points = tuple(
        replace(point, p50_ms=took_ms, p95_ms=took_ms, p99_ms=took_ms) for point in known.points
    )
    it.catalog.put_profiles((replace(known, points=points, measured_at="later"),), ())


def believed_ms(of: Gateway) -> float:
    """What queries are sent by."""
    [view] = of.path.snapshot.tasks.values()
    return view.by_variant[A][0].table.ms[1]


def replicas(of: Gateway) -> list[ReplicaStatus]:
    """What the workers say of the variant."""
    return [
        replica
        for status in of.known.workers.statuses()
        for replica in status.replicas
        if replica.state is ReplicaState.READY
    ]


async def ask(client: httpx.AsyncClient, latency_ms: float) -> httpx.Response:
    body = {"task": "digits", "inputs": [[0.0] * 64], "slo": {"latency_ms": latency_ms}}
    return await client.post("/v1/query", json=body)


def status(client: httpx.AsyncClient, latency_ms: float, wanted: int) -> Callable[[], object]:
    async def asked() -> bool:
        return (await ask(client, latency_ms)).status_code == wanted

    return asked


def routed(it: Fleet) -> list[float]:
    """The classes that the plan has a route for, by their latency."""
    plan = it.catalog.latest_plan()
    return [] if plan is None else [route.latency_ms for route in plan.routes]


async def test_a_profile_that_is_far_too_slow_is_found_out_although_it_refuses(
    tmp_path: Path, port: int
) -> None:
    other = free_port()
    async with fleet(tmp_path, port=port, workers=2) as it, gateway(it) as (first, client):
        it.settings = it.settings.model_copy(update={"port": other})
        async with gateway(it) as (second, _):
            it.register("a")
            falsify(it, 2_000.0)
            it.control()
            await eventually(lambda: len(replicas(first)) == len(replicas(second)) == 2)
            refused = await ask(client, 200.0)
            assert refused.status_code == 422
            assert BEING_CHECKED in refused.json()["reasons"][A]
            await eventually(status(client, 200.0, 200))
            # Each worker admits by what it has seen itself, and none has had a query before.
            await eventually(lambda: all(one.checks for one in replicas(second)))
            await eventually(lambda: believed_ms(first) < 200.0 and believed_ms(second) < 200.0)
            await eventually(lambda: 200.0 in routed(it))
            await eventually(lambda: "profile_doubted" in it.kinds_of_events())
            [doubted] = it.catalog.profiling_requests()
            assert "its profile says 2,000 ms" in doubted.reason


async def test_a_worker_that_replaces_one_that_had_found_out_finds_out_as_well(
    tmp_path: Path, port: int
) -> None:
    """Gateways know what it takes, but the new worker admits by the profile."""
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        falsify(it, 2_000.0)
        it.control()
        await eventually(lambda: len(replicas(of)) == 1)
        await eventually(status(client, 200.0, 200))
        it.cluster.kill("w1")
        await it.until_ready(w2=[A])
        await eventually(status(client, 200.0, 200))
        await eventually(lambda: [one.checks > 0 for one in replicas(of)] == [True])


async def test_a_profile_that_is_far_too_quick_is_found_out_by_batches(
    tmp_path: Path, port: int
) -> None:
    other = free_port()
    async with fleet(tmp_path, port=port) as it, gateway(it) as (first, client):
        it.settings = it.settings.model_copy(update={"port": other})
        async with gateway(it) as (second, there):
            it.register("a", latency_ms="300")
            falsify(it, 30.0)
            it.control()
            await eventually(lambda: len(replicas(first)) == len(replicas(second)) == 1)
            await eventually(status(client, 200.0, 422))
            await eventually(lambda: 200.0 not in routed(it))
            # The other gateway has not sent a single query.
            await eventually(status(there, 200.0, 422))
            assert believed_ms(first) > 200.0
            assert believed_ms(second) > 200.0
            assert (await ask(there, 30_000.0)).status_code == 200
