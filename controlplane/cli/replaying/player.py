"""Playing a trace as an open loop: each query at its time, whatever became of those before."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import orjson

from controlplane.cli.asking.connections import Connections
from controlplane.cli.asking.rows import QueryRows
from controlplane.cli.gateway_client import Access
from controlplane.cli.replaying.outcomes import Outcomes
from controlplane.client.exchange import PATH, query_document

if TYPE_CHECKING:
    from planner.simulation.trace import Trace

GRACE_S = 10.0
"""How long an answer is waited for beyond its deadline."""
BEGIN_S = 0.2
"""Before the first query, so that it is sent in time."""
TOLD_EVERY_S = 0.25
MOST_FORMS = 4_096
"""Different SLOs whose text is kept."""
NO_COST = 1e9
"""A ceiling that nothing reaches, USD per 1,000 queries."""
INDEPENDENT = {"Content-Type": "application/json", "Via": "1.1 modelless-replay"}
"""The queries of a trace are of many clients, though they share connections: a gateway would hold
the refusal of one that asks again too soon on the same connection, where nothing says that."""


class Bodies:
    """The bodies of a trace's queries."""

    def __init__(
        self,
        trace: "Trace",
        rows: Mapping[str, QueryRows],
        defaults: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """``rows`` and ``defaults``, the SLO where a query names nothing, are by task."""
        self._trace = trace
        self._rows = [rows.get(name) for name in trace.tasks]
        self._defaults = [defaults.get(name, {}) for name in trace.tasks]
        self._asked = [0] * len(trace.tasks)
        self._forms: dict[tuple[int, float, float, float], bytes] = {}

    def of(self, index: int) -> bytes:
        """The body of a query, with the next row of its task."""
        trace = self._trace
        task = trace.task[index]
        key = (task, trace.latency_ms[index], trace.min_accuracy[index], trace.max_cost[index])
        if (form := self._forms.get(key)) is None:
            form = self._form(*key)
            if len(self._forms) < MOST_FORMS:
                self._forms[key] = form
        rows = self._rows[task]
        assert rows is not None, "tasks that are asked have rows"
        number = self._asked[task]
        self._asked[task] = number + 1
        return b"%s%s}" % (form, rows.inputs(number))

    def _form(self, task: int, latency_ms: float, floor: float, ceiling: float) -> bytes:
        """A body up to its inputs. A trace that asks for no floor or ceiling means none, also where
        the task has one by default."""
        default = self._defaults[task]
        accuracy: float | None = floor
        if floor == -inf:
            accuracy = None if default.get("accuracy") is None else 0.0
        cost: float | None = ceiling
        if ceiling == inf:
            cost = None if default.get("cost") is None else NO_COST
        document = query_document(
            self._trace.tasks[task], {}, latency_ms=latency_ms, accuracy=accuracy, cost=cost
        )
        return orjson.dumps(document)[:-1] + b',"inputs":'


class Player:
    """Plays a trace once. ``outcomes`` has what became of it so far, also after an interrupt."""

    def __init__(self, trace: "Trace", bodies: Bodies, access: Access, connections: int) -> None:
        self.outcomes = Outcomes(trace)
        self._bodies = bodies
        self._access = access
        self._connections = connections
        self._progress: Callable[[Outcomes], None] = lambda _: None
        self._rest: asyncio.Event | None = None

    async def play(self, progress: Callable[[Outcomes], None]) -> None:
        """Send all queries and wait for what becomes of them; ``progress`` is called now and then.

        Raises:
            InvalidInput: the gateway's URL is none.
        """
        self._progress = progress
        loop = asyncio.get_running_loop()
        connections = Connections(self._access, self._connections, headers=INDEPENDENT)
        self._rest = asyncio.Event()
        try:
            await self._send(connections, loop.time() + BEGIN_S)
            while self.outcomes.ended < self.outcomes.sent:
                self._rest.clear()
                await self._rest.wait()
        finally:
            await connections.close()
        self._progress(self.outcomes)

    async def _send(self, connections: Connections, begin_s: float) -> None:
        clock = asyncio.get_running_loop().time
        outcomes, bodies = self.outcomes, self._bodies
        head = connections.head(PATH)
        arrival_s: Sequence[float] = outcomes.trace.arrival_s
        latency_ms = outcomes.trace.latency_ms
        tell_s = begin_s
        for index, at_s in enumerate(arrival_s):
            due_s = begin_s + at_s
            while (wait_s := due_s - clock()) > 0:
                await asyncio.sleep(min(wait_s, TOLD_EVERY_S))
                if clock() > tell_s:
                    tell_s = clock() + TOLD_EVERY_S
                    self._progress(outcomes)
            outcomes.asked(index)
            told = partial(self._told, index, due_s, begin_s)
            timeout_s = latency_ms[index] / 1_000 + GRACE_S
            connections.send(head, bodies.of(index), timeout_s, told)
            if index % 64 == 63:  # a client that is behind still has to read
                await asyncio.sleep(0)

    def _told(self, index: int, due_s: float, begin_s: float, answer: Any) -> None:
        self.outcomes.told(index, due_s, begin_s, answer)
        if self._rest is not None and self.outcomes.ended == self.outcomes.sent:
            self._rest.set()
