"""What a worker knows beside the queries that ran: what is planned, and which could not wait."""

import time
from dataclasses import replace

import pytest

from tests.workers.builders import echo_spec
from variants.errors import Overloaded
from workers.execution.loader import Loading
from workers.execution.room import Demanded
from workers.types import LoadSpec, variant_id


def half(name: str, planned_qps: float | None = None) -> LoadSpec:
    """Half of the memory, and a load of 1 s by its profile."""
    return replace(echo_spec(variant=name), memory_mib=50.0, load_s=1.0, planned_qps=planned_qps)


def held(loading: Loading) -> set[str]:
    return {str(r.spec.variant) for r in loading.executor.replicas.values()}


async def test_what_the_plan_brings_queries_to_stays_although_none_has_come(
    loading: Loading,
) -> None:
    await loading.load(half("filler"))
    await loading.load(half("planned", planned_qps=1_000.0))
    await loading.load(half("asked"), demanded=Demanded(waiting=True))
    assert held(loading) == {"planned", "asked"}


async def test_a_plan_that_brings_it_nothing_any_more_takes_that_back(loading: Loading) -> None:
    await loading.load(half("a", planned_qps=1_000.0))
    await loading.load(half("b", planned_qps=1_000.0))
    with pytest.raises(Overloaded):
        await loading.load(half("c"), demanded=Demanded(waiting=True))
    await loading.load(half("a"))  # a gateway knows of no plan
    with pytest.raises(Overloaded):
        await loading.load(half("c"), demanded=Demanded(waiting=True))
    await loading.load(half("a", planned_qps=0.0))
    await loading.load(half("c"), demanded=Demanded(waiting=True))
    assert held(loading) == {"b", "c"}


async def test_queries_that_could_not_wait_make_a_variant_urgent(loading: Loading) -> None:
    await loading.load(half("refused"), demanded=Demanded(waiting=False))
    await loading.load(half("waited"), demanded=Demanded(waiting=True))
    ids = [variant_id(spec.task, spec.variant) for spec in (half("refused"), half("waited"))]
    refused, waited = (loading.executor.usage.urgency.share(each) for each in ids)
    assert refused > waited
    held = list(loading.executor.replicas.values())
    residents = loading.room.residents(held, time.monotonic())
    assert [each.urgent for each in residents] == [refused, waited]


async def test_loads_are_counted_with_what_they_take(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    assert (loading.thread.loads, loading.thread.profiled_s) == (2, 2.0)
    assert loading.thread.took_s > 0.0


async def test_a_worker_says_how_many_rows_a_query_has(loading: Loading) -> None:
    await loading.load(half("a"))
    (replica,) = loading.executor.replicas.values()
    assert replica.status(0.0).rows_per_query == 0.0  # not known yet
    replica.used(0.0, queries=2, rows=16)
    assert replica.status(0.0).rows_per_query == 8.0
    for _ in range(100):
        replica.used(0.0, queries=10, rows=20)
    assert replica.status(0.0).rows_per_query == 2.0
