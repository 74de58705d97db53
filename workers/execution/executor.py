"""The executor of one slice: it takes queries in, refuses them or queues them to be run.

All decisions are its queue's (``planner.batching.protocol``); this is the shell that acts on them,
on one event loop. How what it queued is run and answered is in ``batch_runner``.
"""

from collections.abc import Callable

from planner.batching.live_costs import RELAX_EVERY_MS
from planner.batching.protocol import LiveQueue, Verdict
from planner.batching.queue_room import one
from planner.batching.variant_queues import Item
from planner.planning_settings import DEFAULTS
from planner.types import ANYBODY, DEFAULT_PRIORITY, Client
from variants.types import ReplicaState
from workers.channel.frames import Chunk, Layout
from workers.execution.batch_runner import INLINE_MS, MAX_FRAME, BatchRunner
from workers.execution.outcomes import now_ms
from workers.execution.replicas import Job, Replica, Responder
from workers.process.quarantine import CrashLedger
from workers.types import ReplyCode

DISPLACED = "the queue is full, and others come first"
MAX_WAITING = 1_024
"""Queries that wait for one load."""
MAX_QUEUE_BYTES = 256 * 2**20
"""Tensors of the queries that were taken and not answered yet. The largest query is always taken
while there is no other."""
WITHDRAW_S = 0.02
"""So long after a query was withdrawn all that wait are gone through, for all that were, ..."""
REST_TIMES = 20.0
"""... and not before so many times as long have passed as it took the last time."""
LONG_QUEUE = 64
"""From so many waiting queries on, each has bytes of its own: else a short one would keep all that
arrived in the same moment."""
# A member of an enumeration takes ten times as long to look up as a name of this module.
OK, READY, LOADING = ReplyCode.OK, ReplicaState.READY, ReplicaState.LOADING
ADMITTED, QUEUE_FULL = Verdict.ADMITTED, Verdict.QUEUE_FULL


class Executor(BatchRunner):
    """Takes queries for the replicas in ``replicas`` and answers each exactly once."""

    def __init__(
        self,
        ledger: CrashLedger,
        max_frame: int = MAX_FRAME,
        queue: LiveQueue | None = None,
        late_share: float = DEFAULTS.late_share,
    ) -> None:
        super().__init__(ledger, INLINE_MS, max_frame, queue, late_share)
        self._max_bytes = MAX_QUEUE_BYTES
        self._withdrawn: set[tuple[Responder, int]] = set()
        """Queries that nobody waits for any more, by the connection that they came from."""
        self._left: set[Responder] = set()
        """Connections that have ended: nobody waits for any query of theirs."""
        self._rest_s = 0.0

    def submit(
        self, variant: int, rows: int, budget_us: int, layout: Layout, data: Chunk, base: int,
        responder: Responder, request_id: int, priority: int = DEFAULT_PRIORITY,
        client: Client = ANYBODY,
    ) -> None:  # fmt: skip
        """Admit a query or refuse it at once.

        Args:
            variant: id of the variant (``workers.types.variant_id``).
            rows: of the query, as its frame says.
            budget_us: time until its deadline.
            layout: types and shapes of its tensors, the batch axis first.
            data: a frame, or bytes of shared memory; the tensors begin at byte ``base``.
            responder: where the answer goes.
            request_id: names the query on its connection.
            priority: 1 is the highest.
            client: by whose key it was asked.
        """
        replica = self.replicas.get(variant)
        code, message = OK, ""
        if self.draining:
            code = ReplyCode.DRAINING
        elif replica is None:
            code = ReplyCode.COLD
        elif replica.state is not READY and replica.state is not LOADING:
            code, message = _absent(replica)
        elif rows != layout.rows or not replica.accepts(layout, data, base):
            code, message = ReplyCode.INVALID, "the tensors do not have the variant's signature"
        if code or replica is None:
            self._refuse(responder, request_id, code, message)
            return
        arrived_ms = now_ms()
        deadline_ms = arrived_ms + budget_us / 1000.0
        job = Job(replica, deadline_ms, arrived_ms, layout, data, base, responder, request_id)
        job.priority, job.client = priority, client
        nbytes = layout.nbytes
        if self._held_bytes + nbytes > self._max_bytes and self._in_flight:
            needed = self._held_bytes + nbytes - self._max_bytes
            if not self._make_room(job, needed, _bytes_of):
                self._refuse_verdict(job, QUEUE_FULL)
                return
        if replica.state is LOADING:
            self._wait_for_load(job)
            return
        verdict = self.queue.admit(job, arrived_ms)
        if verdict is QUEUE_FULL and self._make_room(job, 1, one):
            verdict = self.queue.admit(job, arrived_ms)
        if verdict is not ADMITTED:
            self._refuse_verdict(job, verdict)
            return
        if self._in_flight > LONG_QUEUE and len(data) > 4 * nbytes + 4096:
            job.data, job.base = data[base : base + nbytes], 0
        self._take(job)
        if not self._stepping and self._running is None:
            self._stepping = True
            self._loop.call_soon(self._step)

    def withdraw(self, responder: Responder, request_id: int) -> None:
        """Nobody waits for a query any more: it need not run where it has not begun.

        All that wait are gone through for those of a moment together. Who was answered meanwhile
        is forgotten with them.
        """
        self._withdraw_soon()
        self._withdrawn.add((responder, request_id))

    def left(self, responder: Responder) -> None:
        """A connection has ended. Who had asked over it has its queries answered elsewhere, or is
        gone: what has not begun need not run."""
        if self._in_flight:
            self._withdraw_soon()
            self._left.add(responder)

    def _withdraw_soon(self) -> None:
        if not (self._withdrawn or self._left):
            self._loop.call_later(WITHDRAW_S + self._rest_s, self._let_go)

    def _let_go(self) -> None:
        began_ms = now_ms()
        gone, self._withdrawn = self._withdrawn, set()
        ended, self._left = self._left, set()

        def is_gone(item: Item) -> bool:
            assert isinstance(item, Job)
            return item.responder in ended or (item.responder, item.request_id) in gone

        left = self.queue.withdraw(is_gone, began_ms)
        for replica in self.replicas.values():
            for job in [job for job in replica.waiting if is_gone(job)]:
                replica.waiting.pop(job).cancel()
                left.append(job)
        for item in left:
            self.refuse(item, ReplyCode.EXPIRED)
        self._rest_s = REST_TIMES * (now_ms() - began_ms) / 1_000

    def _make_room(self, job: Job, needed: int, size_of: Callable[[Item], int]) -> bool:
        """Refuse others that come after a query in the order of refusal; return whether it helped.

        What waits for a load or runs is not touched.
        """
        left = self.queue.make_room(job, job.arrived_ms, needed, size_of)
        for item in left:
            self.refuse(item, ReplyCode.OVERLOADED, DISPLACED)
        return bool(left)

    def _refuse_verdict(self, job: Job, verdict: Verdict) -> None:
        replica, idle_ms = job.replica, job.arrived_ms - job.replica.relaxed_ms
        if verdict is Verdict.WOULD_BE_LATE and not replica.in_flight and idle_ms >= RELAX_EVERY_MS:
            self.costs.relax(replica.queue, replica.model, idle_ms)
            replica.relaxed_ms = job.arrived_ms
        too_many = verdict is Verdict.TOO_MANY_ROWS
        code = ReplyCode.INVALID if too_many else ReplyCode.OVERLOADED
        message = verdict.value
        if too_many:
            message = f"{job.rows} rows are more than the largest batch of {job.queue.max_batch}"
        self._refuse(job.responder, job.request_id, code, message)

    def _wait_for_load(self, job: Job) -> None:
        """Keep a query until its variant is loaded, if that can be in time."""
        replica = job.replica
        if job.rows > replica.queue.max_batch:
            self._refuse_verdict(job, Verdict.TOO_MANY_ROWS)
            return
        load_s = self.usage.load_pace * replica.spec.load_s
        ready_ms = (replica.started_s + load_s) * 1000
        done_ms = max(ready_ms, job.arrived_ms) + replica.queue.latency_ms(job.rows)
        if done_ms > job.deadline_ms or len(replica.waiting) >= MAX_WAITING:
            self._refuse(job.responder, job.request_id, ReplyCode.COLD, "it is still loading")
            return
        self._take(job)
        left_s = (job.deadline_ms - job.arrived_ms) / 1000
        replica.waiting[job] = self._loop.call_later(left_s, self._give_up, job)

    def _give_up(self, job: Job) -> None:
        if job.replica.waiting.pop(job, None) is not None:
            self.refuse(job, ReplyCode.EXPIRED)

    def loaded(self, replica: Replica) -> None:
        """Admit or refuse the queries that waited for the load."""
        for job in replica.stop_waiting():
            verdict = self.queue.admit(job, now_ms())
            if verdict is not Verdict.ADMITTED:
                self._release(job)
                self._refuse_verdict(job, verdict)
        self.nudge()


def _bytes_of(item: Item) -> int:
    assert isinstance(item, Job)
    return item.layout.nbytes


def _absent(replica: Replica) -> tuple[ReplyCode, str]:
    """The refusal of a query for a variant that is listed here and is neither ready nor loading."""
    if replica.state is ReplicaState.QUARANTINED:
        return ReplyCode.QUARANTINED, replica.message
    return ReplyCode.COLD, replica.message
