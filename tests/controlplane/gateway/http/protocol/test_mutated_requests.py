"""Whatever bytes come over HTTP: each request is answered or refused, and nothing is left of it.

A slice of it runs always. ``make campaign`` sends 40,000; ``pytest -s -m campaign`` with this file
prints what came of them, and ``MODELLESS_TEST_SEED`` sends other bytes.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from controlplane.gateway.canaries.recent_answers import RecentAnswers
from controlplane.gateway.http.client_limits import ClientLimits
from tests.controlplane.gateway.http.protocol.mutated_requests import Ledger, client
from tests.controlplane.serving import FAST, KNOWN, LATE, Served, query, serving
from tests.controlplane.serving import until as eventually
from tests.ledger import SEED, Footprint, footprint, unheard

AT_ONCE = 16
SLICE = 400
CAMPAIGN = 40_000
LIMITS = ClientLimits(
    head_s=0.5, window_s=0.4, grace_s=0.1, idle_s=0.5, unread_s=1.0, ending_s=1.0, sweep_s=0.1
)
"""So that a client that waits for the end of a connection does not wait for long."""
REMEMBERED = 256
"""Answers that the gateway remembers: what it keeps of them is soon all that it ever will."""
MORE_OBJECTS, MORE_MIB = 2_000, 8.0
"""That the second half of a campaign may leave. One object for each of its requests would be 20,000
of them."""


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    known = [one for one in KNOWN if one.name in (FAST, LATE)]  # nothing is loaded meanwhile
    async with serving(
        short_folder, live_url, max_body_mib=0.25, limits=LIMITS, known=known
    ) as running:
        running.gateway.path.answers = RecentAnswers(REMEMBERED)
        await running.worker("w1", FAST, LATE)
        yield running


async def send(served: Served, requests: int, *, polite: bool, part: int = 0) -> Ledger:
    """Requests of many clients at once, and what came of them."""
    ledger = Ledger()
    each = requests // AT_ONCE
    randoms = [Random(f"{SEED} {part} {number}") for number in range(AT_ONCE)]
    await asyncio.gather(
        *(client(served.port, random, each, ledger, polite=polite) for random in randoms)
    )
    path = served.gateway.path
    await eventually(lambda: not served.in_flight and not path.departures.others)
    return ledger


async def nothing_is_left(served: Served) -> None:
    """Nothing is under way, no connection is open, and the next query is answered."""
    path, server = served.gateway.path, served.gateway.servers.http
    assert (await served.ask(query(1))).status == 200
    assert (len(path.guard), path.held_bytes, sum(path.held.values())) == (0, 0, 0)
    assert server is not None
    await eventually(lambda: not server.server_state.connections)
    worker = served.gateway.known.workers
    assert all(not one.connection._pending for one in worker.values())


def counted(served: Served) -> int:
    """Answered queries, by each of the counters that count them, which all say the same."""
    task = served.gateway.path.counters.task(served.task.name)
    answered = sum(one.met + one.missed for one in task.variants.values())
    assert sum(task.buckets) == sum(task.choices.values()) == answered
    assert sum(one.rows for one in task.variants.values()) == sum(
        rows for one in task.variants.values() for rows, _ in one.batches.values()
    )
    return answered


@pytest.mark.slow
async def test_whatever_comes_is_answered_or_refused_and_nothing_is_left(served: Served) -> None:
    with unheard() as failures:
        ledger = await send(served, SLICE, polite=False)
        await nothing_is_left(served)
    assert (ledger.wrong, failures) == ([], [])
    assert ledger.answered <= counted(served) <= ledger.answered + ledger.unread + 1


@pytest.mark.slow
async def test_clients_that_read_all_were_given_the_answers_that_are_counted(
    served: Served,
) -> None:
    with unheard() as failures:
        ledger = await send(served, SLICE, polite=True)
    assert (ledger.wrong, failures) == ([], [])
    assert ledger.answered <= counted(served) <= ledger.answered + ledger.unread
    assert ledger.unread < SLICE // 20
    assert ledger.answered > SLICE // 8


@pytest.mark.campaign
@pytest.mark.slow
async def test_the_whole_campaign_leaves_no_more_than_its_first_half(served: Served) -> None:
    held: list[Footprint] = []
    ledgers: list[Ledger] = []
    with unheard() as failures:
        for part in (1, 2):
            for polite in (False, True):
                before = counted(served)
                ledger = await send(served, CAMPAIGN // 4, polite=polite, part=part)
                print(ledger.lines())
                ledgers.append(ledger)
                more = counted(served) - before
                assert ledger.answered <= more <= ledger.answered + ledger.unread
                await nothing_is_left(served)
            held.append(footprint())
            print(f"{held[-1]}")
    print(f"the second half has left {held[1].over(held[0])}")
    assert [one.wrong for one in ledgers] == [[], [], [], []]
    assert failures == []
    assert held[1].objects - held[0].objects < MORE_OBJECTS
    assert held[1].resident_mib - held[0].resident_mib < MORE_MIB
