"""SharedFlight: a query in flight whose run equal queries wait for, or that waits for another's.

Whoever waits never counts on the one that runs: it joins only a run that has to end before its own
deadline, keeps its own deadline and its own guard, and is run itself where the other one fails for
want of time or of a worker. The one that runs does not know how many wait.
"""

from typing import Protocol

from controlplane.gateway.query.deadline_guard import GRACE_MS
from controlplane.gateway.query.departures import Gone, innermost
from controlplane.gateway.query.in_flight import InFlight
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_context import QueryContext, Respond
from planner.types import Candidate, Query, WorkerView
from variants.errors import Internal, InvalidInput
from variants.types import CatalogState
from workers.channel.reply import Reply


class Ended(Protocol):
    """Who is told how a run has ended."""

    def answered(self, run: "SharedFlight", reply: Reply, now_ms: float) -> None:
        """Its variant has answered. It is told before the answer is on its way."""

    def failed(self, run: "SharedFlight", error: Exception) -> None:
        """It has been answered with an error."""


class SharedFlight(InFlight):
    """A query of a task whose answers are shared, between its first byte and its answer."""

    __slots__ = (
        "asked_by", "joined", "key", "left_ms", "lookup_ms", "shares", "state", "waits_for",
    )  # fmt: skip

    def __init__(
        self,
        path: QueryContext,
        parsed: ParsedQuery,
        respond: Respond,
        given_id: bytes | None,
        shares: Ended,
        key: bytes,
        lookup_ms: float,
    ) -> None:
        """
        Args:
            key: what its inputs are.
            lookup_ms: what it took to find that no answer is kept.
        """
        super().__init__(path, parsed, respond, given_id)
        self.shares = shares
        self.asked_by = innermost(respond)
        self.left_ms: float | None = None
        """When the client went that had asked for the run; None while it waits."""
        self.key = key
        self.lookup_ms = lookup_ms
        self.state: CatalogState | None = None
        """The catalog's state when it began to run; None: it does not run."""
        self.joined: dict[SharedFlight, None] = {}
        """Queries that wait for its answer, in the order in which they came."""
        self.waits_for: SharedFlight | None = None
        """The query whose answer it waits for."""

    def run(self, query: Query) -> None:
        """Choose and send, as any other query."""
        self.state = self.path.snapshot.state
        self.dispatch(query)

    def by_ms(self, *, at_most: bool) -> float:
        """When its answer is there at the latest, or, not ``at_most``, when it has to be."""
        query = self.parsed.query
        grace_ms = GRACE_MS if at_most and query.best_effort else 0.0
        return query.received_ms + query.latency_ms + grace_ms

    def join(self, run: "SharedFlight") -> None:
        """Wait for the answer of another query."""
        self.waits_for = run
        run.joined[self] = None

    def answer_joined(self, body: bytes, headers: bytes) -> None:
        """Answer with what another one's run has given."""
        self.done = True
        self.path.counters.in_flight -= 1
        self._release()(200, body, headers)

    def left_by(self, gone: Gone) -> None:
        """End a query that waits for another's answer. One that runs goes on, as others may wait
        for its answer, or ask for the same while it is kept; only then it ends as left."""
        left_ms = gone.get(self.asked_by)
        if self.done or left_ms is None or self.left_ms is not None:
            return
        if self.state is not None:
            self.left_ms = left_ms
            return
        if self.waits_for is not None:
            self.waits_for.joined.pop(self, None)
        self.let_go(left_ms)

    def _load_first(self, candidate: Candidate, worker: WorkerView, query: Query) -> None:
        self.candidate = candidate  # known from now on, for those who would wait for it
        super()._load_first(candidate, worker, query)

    def _answer(self, reply: Reply, now_ms: float) -> None:
        self.shares.answered(self, reply, now_ms)
        if self.left_ms is not None:
            self.let_go(self.left_ms)
        else:
            super()._answer(reply, now_ms)

    def fail(self, error: Exception) -> None:
        if self.done:
            return
        if self.left_ms is not None:
            self.let_go(self.left_ms)
        else:
            super().fail(error)
        self.shares.failed(self, error)


def concerns_all(error: Exception) -> bool:
    """Whether an equal query would end in the same error: the model cannot run these inputs."""
    return isinstance(error, Internal | InvalidInput)
