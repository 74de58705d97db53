"""A gateway whose queries prefer the fewest joules, or grams of CO2 by the hour."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KIND,
    KNOWN,
    SLOW,
    TASK,
    Served,
    query,
    serving,
)

JOULES = {FAST: 5.0, DOUBLE: 2.0}


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    known = [replace(one, energy_j=JOULES.get(one.name)) for one in KNOWN]
    async with serving(short_folder, live_url, known=known) as running:
        yield running


async def answered_by(served: Served, prefer: str) -> tuple[str, str]:
    """The variant, and why it was chosen."""
    slo = {"latency_ms": 30_000.0, "prefer": prefer}
    answer = await served.ask(query(variant=None, slo=slo))
    return str(answer.json["variant"]), answer.headers["x-choice-reason"]


async def test_the_fewest_joules_answer_a_query_that_prefers_them(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)

    assert await answered_by(served, "cost") == (FAST, "cheapest_that_fits")
    assert await answered_by(served, "energy") == (DOUBLE, "least_energy_that_fits")


async def test_what_answers_without_measured_joules_says_so(served: Served) -> None:
    await served.worker("w1", SLOW)

    assert await answered_by(served, "energy") == (SLOW, "energy_not_measured")


async def test_what_a_joule_emits_is_of_the_present_hour(served: Served) -> None:
    catalog, known = served.gateway.catalog, served.gateway.known
    day = tuple(100.0 * hour for hour in range(24))
    profile = catalog.snapshot().profiles[0]
    catalog.put_profiles((profile,), (replace(KIND, carbon_g_per_kwh=day),))
    await known.refresh_catalog(catalog.marks())

    def grams() -> float:
        view = served.gateway.path.snapshot.tasks[TASK.name]
        return next(c.footprint for c in view.by_cost if c.variant == DOUBLE)

    seen = []
    for hour in (3, 21):
        known.refresh_hour(3_600.0 * (24 * 20_000 + hour))
        seen.append(grams())
    assert seen == [pytest.approx(2.0 * 100.0 * hour / 3.6e6) for hour in (3, 21)]
