"""Random clients that stay or go, and workers that fail at random: each query has one outcome.

In virtual time, over the gateway's query path and its ends of the tensor channel. ``make campaign``
plays 80 such minutes; ``MODELLESS_TEST_SEED`` plays others.
"""

import asyncio
from collections import Counter
from functools import cache
from random import Random, getstate, setstate
from random import seed as seed_all
from typing import Any, cast

import orjson
import pytest

from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_path import QueryPath
from controlplane.http_errors import CLIENT_GONE_STATUS
from planner.selection.routes import EMPTY
from planner.types import Candidate
from tests.conftest import EXAMPLES
from tests.controlplane.gateway.query.faults.scripted_workers import ScriptedWorker
from tests.controlplane.gateway.query.faults.virtual_loop import VirtualLoop, run
from tests.ledger import SEED, unheard
from tests.planner.builders import DIGITS, catalog, key, profile, snapshot, task, variant, worker
from variants.errors import Overloaded, VariantNotLoadable
from variants.types import TaskName, WorkerId

PLAYED = max(2, round(4 * EXAMPLES))
CLIENTS_S, END_S = 60.0, 70.0
"""For how long clients ask, and when the last query has its answer whatever became of it."""
PER_S = 50.0
LEAVE = 0.25
"""Of clients, those that go before their answer."""
LIVES_S, AWAY_S = 4.0, 0.5
"""How long a worker's process lasts, and until the next one is there, in the mean."""


class Played:
    """A minute of queries."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.told: list[list[int]] = []
        """The statuses that each query was given."""
        self.codes: Counter[str] = Counter()
        self.path = QueryPath(loader=cast(Any, self._load), clock_ms=loop.now_ms)
        self.path.unheard = self._unheard
        self.task = task()
        self.catalog = catalog(
            [variant("a", 0.9), variant("b", 0.95)],
            [profile("a", 5.0, load_s=0.2), profile("b", 20.0, load_s=0.2)],
        )
        self.workers = [
            ScriptedWorker(name, Random(random.random()), self._know) for name in ("w1", "w2", "w3")
        ]

    def _know(self) -> None:
        """The gateway learns who is there."""
        there = [one for one in self.workers if one.connection is not None]
        holds = {"w1": {key("a")}, "w2": {key("a"), key("b")}, "w3": {key("b")}}
        views = [(worker(one.id, free_mib=1_000.0), holds[one.id]) for one in there]
        for view, _ in views:
            view.busy_until_ms = 0.0
        self.path.update(
            snapshot=snapshot(self.catalog, *views),
            routes=EMPTY,
            tasks={TaskName(DIGITS): self.task},
            connections={one.id: one.connection for one in there if one.connection is not None},
        )

    def _unheard(self, name: WorkerId) -> None:
        """As a gateway that takes a worker for one that hangs."""
        for one in self.workers:
            if one.id == name and one.connection is not None:
                one.connection.hand_back()

    def _load(
        self, candidate: Candidate, _worker: WorkerId, _slack_ms: float | None, _need: str = ""
    ) -> "asyncio.Future[None]":
        """A load that is there soon, or fails."""
        loading: asyncio.Future[None] = self.loop.create_future()
        fails = self.random.random() < 0.2
        name = candidate.variant
        why = self.random.choice(
            [
                VariantNotLoadable(f"{name} does not load", reasons={name: "it is damaged"}),
                Overloaded(f"there is no room for {name}"),
            ]
        )

        def over() -> None:
            if fails:
                loading.set_exception(why)
            else:
                loading.set_result(None)

        self.loop.call_later(self.random.random() * 0.5, over)
        return loading

    def _body(self) -> bytes:
        random = self.random
        rows = random.choice([1, 1, 1, 3])
        slo: dict[str, Any] = {"latency_ms": random.choice([10, 30, 100, 1_000])}
        if random.random() < 0.3:
            slo["accuracy"] = random.choice([0.9, 0.95, 0.99])
        asked: dict[str, Any] = {"task": DIGITS, "inputs": [[0.5] * 64] * rows, "slo": slo}
        if random.random() < 0.2:
            asked["variant"] = random.choice(["a", "b", "none"])
        if random.random() < 0.1:
            asked["best_effort"] = True
        body = orjson.dumps(asked)
        return body[:-5] if random.random() < 0.02 else body

    def ask(self) -> None:
        """One query, whose client goes before its answer or does not."""
        told: list[int] = []
        self.told.append(told)

        def respond(status: int, body: bytes, _headers: bytes) -> None:
            told.append(status)
            if status != 200:
                self.codes[orjson.loads(body)["code"]] += 1

        self.path.handle_v1(self._body(), self.loop.now_ms(), respond)
        if self.random.random() < LEAVE:
            after_s = self.random.random() * 0.1
            self.loop.call_later(after_s, self._leave, told, respond)

    def _leave(self, told: list[int], respond: Respond) -> None:
        """The client of a query goes, unless that was answered."""
        if not told:
            self.path.departures.left(respond)

    async def lives(self, one: ScriptedWorker) -> None:
        """Processes of a worker, one after the other."""
        while self.loop.time() < self.until_s:
            one.begin()
            await asyncio.sleep(one.random.expovariate(1 / LIVES_S))
            one.end()
            await asyncio.sleep(one.random.expovariate(1 / AWAY_S))

    async def play(self) -> None:
        began_s = self.loop.time()
        self.until_s = began_s + CLIENTS_S
        living = [asyncio.ensure_future(self.lives(one)) for one in self.workers]
        while self.loop.time() < self.until_s:
            for _ in range(self.random.choice([1, 1, 1, 8])):
                self.ask()
            await asyncio.sleep(self.random.expovariate(PER_S / 2.75))
        await asyncio.sleep(began_s + END_S - self.loop.time())
        await asyncio.gather(*living)


@cache
def played(seed: str) -> tuple[Played, list[str]]:
    """What became of it, and what nobody was told. It takes seconds, so tests share it."""
    loop = VirtualLoop()

    async def play() -> tuple[Played, list[str]]:
        with unheard() as failures:
            made = Played(loop, Random(seed))
            await made.play()
        return made, failures

    before = getstate()
    seed_all(seed)  # a gateway draws workers and ids by the random numbers of its process
    try:
        return run(play(), loop)
    finally:
        setstate(before)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PLAYED))
def test_each_query_has_one_outcome_and_nothing_stays(number: int) -> None:
    made, failures = played(f"{SEED} {number}")
    path = made.path
    assert {len(told) for told in made.told} == {1}
    statuses = Counter(told[0] for told in made.told)
    # What a worker says of a variant that has failed is logged, the first time of each variant, and
    # nothing else is.
    assert [one for one in failures if not one.endswith("Internal('refused')")] == []
    assert len(failures) <= statuses[500]
    assert bool(failures) is bool(statuses[500])
    # It is no play in which all goes well, or nothing.
    assert min(statuses[200], statuses[503], statuses[504], statuses[CLIENT_GONE_STATUS]) > 20
    assert sum(one.withdrawn for one in made.workers) > 20

    # Each is counted once, as what its client was told.
    counted = path.counters.tasks
    answered = [one for each in counted.values() for one in each.variants.values()]
    assert sum(one.met + one.missed for one in answered) == statuses[200]
    errors = Counter[str]()
    for each in counted.values():
        errors.update(each.errors)
    assert errors == made.codes

    # Nothing stays in a table.
    assert path.counters.in_flight == path.held_bytes == len(path.guard) == 0
    assert not any(path.held.values())
    assert not path.departures.others
    assert not path.departures._gone
    ended = [connection for one in made.workers for connection in one.past]
    assert len(ended) > 10
    assert all(not one._pending and not one._answers for one in ended)


@pytest.mark.slow
def test_a_play_is_the_same_each_time() -> None:
    first, second = (each(f"{SEED} 0")[0] for each in (played, played.__wrapped__))
    assert (first.told, first.codes) == (second.told, second.codes)
