"""Running what is queued on one slice: one batch at a time, each query answered as its batch ends.

A short batch runs on the event loop, because handing it to a thread costs more than it takes; a
longer one runs in a dedicated thread, so that queries are still taken in meanwhile. What a batch
took is learned from, and a variant whose batches fail or hang is put into quarantine.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from math import exp
from queue import SimpleQueue
from typing import cast

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import LiveCosts
from planner.batching.protocol import Batch, LiveQueue
from planner.batching.variant_queues import Item
from planner.types import FormingBatch, QueueNews
from variants.errors import Internal
from variants.metrics.answered import count_into
from variants.types import ReplicaState
from workers.execution.outcomes import Outcome, asked, mistake, note_alone, now_ms, outcome_of
from workers.execution.replicas import Job, LoneJob, Replica, Responder
from workers.execution.replies import send_outputs, send_refusal
from workers.execution.running import Group
from workers.execution.usage import Usage
from workers.process.quarantine import CrashLedger
from workers.process.sparing_log import SparingLog
from workers.types import ReplyCode

sparing = SparingLog(logging.getLogger(__name__))

INLINE_MS = 0.25
"""Batches that run no longer than this in the runtime run on the event loop. A hand-over to the
thread and back was measured to take 0.04 ms of processor time a batch and 0.03 ms of latency: 60 %
more for one query on a model of 4 us, lost in the noise above this."""
MOST_INLINE_MS = 2.5
"""What a batch is predicted to take at most to run on the event loop. Predictions hold what waking
up costs, which running in the thread would not save."""
FAILURES = 2
"""So many failed batches in a row put a variant into quarantine."""
MISTAKES = 3
"""So many times in a row no batch can be formed before the worker says that it is broken."""
STUCK_S = 30.0
STUCK_FACTOR = 50.0
"""A batch is stuck after both 30 s and 50 times its prediction."""
JOIN_S = 2.0
"""How long stopping waits for the running batch."""
MAX_FRAME = 64 * 2**20
"""Bytes of the largest reply: a larger one would break the connection for all others on it."""
BUSY_S = 5.0
"""Time constant of the busy ratio."""


class BatchRunner:
    """Runs the batches of ``queue``, which ``Executor`` fills."""

    def __init__(
        self,
        ledger: CrashLedger,
        inline_ms: float,
        max_frame: int,
        queue: LiveQueue | None,
        late_share: float,
    ) -> None:
        self.queue: LiveQueue = DeadlineQueue() if queue is None else queue
        self.costs = LiveCosts(self.queue, late_share)
        self.replicas: dict[int, Replica] = {}
        self.usage = Usage()
        self.on_used: Callable[[Replica], None] | None = None
        """Called after each batch with the replica that ran it, if somebody set it."""
        self.draining = False
        self.checking = False
        """Whether a profile is being checked: some batches are nobody's query."""
        self.on_quarantine: list[Replica] = []
        """Replicas that failed too often, to be unloaded; ``wake`` is set when one is added."""
        self.wake = asyncio.Event()
        self._ledger = ledger
        self._inline_ms = inline_ms
        self._max_frame = max_frame
        self._loop = asyncio.get_running_loop()
        self._stepping = False
        self._mistakes = 0
        """So many times in a row no batch could be formed, by a mistake of the queue."""
        self._running: Batch | None = None
        self._began_ms = 0.0
        self._kept_waiting = False
        """Whether queries waited when the last batch ended, and have since."""
        self._batches: SimpleQueue[tuple[Batch, float] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="runtime", daemon=True)
        self._in_flight = 0
        self._held_bytes = 0
        self._quiet: asyncio.Future[None] | None = None
        self._busy_ms = 0.0
        self._busy_at_ms = now_ms()

    def start(self) -> None:
        """Start the thread that runs longer batches."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread once the batch in it is done; refuse whatever still waits."""
        self.draining = True
        for replica in self.replicas.values():
            for item in [*replica.stop_waiting(), *self.queue.take(replica.queue)]:
                self.refuse(item, ReplyCode.DRAINING)
        self._batches.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, JOIN_S)
        if self._thread.is_alive() and self._running is not None:
            for_ms = now_ms() - self._began_ms
            if for_ms > max(JOIN_S * 1000, STUCK_FACTOR * self._running.predicted_ms):
                self._blame(self._running, for_ms)
        await asyncio.sleep(0)  # the last batch's answers are on their way into the loop

    def check(self) -> None:
        """Raise ``Internal`` when batches can no longer run."""
        if not self._thread.is_alive():
            raise Internal("the runtime's thread has ended")
        if self._mistakes >= MISTAKES:
            raise Internal(f"no batch could be formed {self._mistakes} times in a row")
        if self._running is not None:
            for_ms = now_ms() - self._began_ms
            limit_ms = max(STUCK_S * 1000, STUCK_FACTOR * self._running.predicted_ms)
            if for_ms > limit_ms:
                raise Internal(self._blame(self._running, for_ms))

    def _blame(self, batch: Batch, for_ms: float) -> str:
        """Put a batch that hangs down to its variant; the sentence about it."""
        job = batch.items[0]
        assert isinstance(job, Job)
        replica = job.replica
        why = f"a batch of {replica.name} has been running for {for_ms / 1000:,.0f} s"
        self._ledger.hung(replica.key, replica.spec.task, replica.spec.variant, why)
        return why

    @property
    def in_flight(self) -> int:
        """Queries taken and not answered yet."""
        return self._in_flight

    async def quiet(self) -> None:
        """Return once nothing is in flight."""
        while self._in_flight:
            if self._quiet is None or self._quiet.done():
                self._quiet = self._loop.create_future()
            await asyncio.shield(self._quiet)

    def backlog_us(self) -> int:
        """Predicted time until all admitted work is done."""
        backlog_us = int(self.queue.backlog_ms(now_ms()) * 1000)
        return backlog_us if backlog_us < 2**32 else 2**32 - 1

    def queue_news(self) -> QueueNews:
        """What gateways are told of the queue that want to know more than how long it is."""
        at_ms = now_ms()
        forming: list[FormingBatch] = []
        for item, rows, most, in_ms in self.queue.forming(at_ms):
            spec = cast(Job, item).replica.spec
            forming.append(FormingBatch(spec.task, spec.variant, rows, most, in_ms))
        return QueueNews(self.queue.backlog_ms(at_ms), forming)

    def busy_ratio(self) -> float:
        """Share of the last seconds spent in runtimes."""
        decayed = self._busy_ms * exp((self._busy_at_ms - now_ms()) / (BUSY_S * 1000))
        return min(1.0, decayed / (BUSY_S * 1000))

    def has_crashed(self, replica: Replica) -> bool:
        """Whether a variant has crashed a worker in the last day, or hung in one."""
        return bool(self._ledger.crashes_s(replica.key))

    def run_alone(self, job: LoneJob) -> bool:
        """Run a batch that checks a profile, if the slice is idle; whether it is.

        It passes the queue by, which need not make room for it, and for which it has no deadline.
        """
        replica, began_ms = job.replica, now_ms()
        busy = self._stepping or self._running is not None or self.queue.count
        if busy or self.draining or replica.state is not ReplicaState.READY:
            return False
        predicted_ms = replica.queue.latency_ms(job.rows)
        self.queue.busy_until_ms = began_ms + predicted_ms
        self._take(job)
        self._run(Batch(replica.queue, [job], job.rows, predicted_ms), replica, began_ms)
        return True

    def nudge(self) -> None:
        """Look for work soon."""
        if not self._stepping and self._running is None and self.queue.count:
            self._stepping = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Start the next batch."""
        self._stepping = False
        if self._running is not None:
            return
        began_ms = now_ms()
        try:
            expired = self.queue.pop_expired(began_ms)
            self.costs.gave_up(len(expired))
            for item in expired:
                self.refuse(item, ReplyCode.EXPIRED)
            batch = self.queue.next_batch(began_ms)
        except Exception as error:
            self._mistaken(error)
            return
        self._mistakes = 0
        if batch is None:
            self._kept_waiting = False
            return
        first = batch.items[0]
        assert isinstance(first, Job)
        self._run(batch, first.replica, began_ms)

    def _mistaken(self, error: Exception) -> None:
        """No batch could be formed: form one anew of what waits, until ``check`` gives up."""
        self._mistakes += 1
        sparing.error("", error, "forming a batch")
        self.queue.recount()
        if self._mistakes < MISTAKES:
            self.nudge()

    def _run(self, batch: Batch, replica: Replica, began_ms: float) -> None:
        """Run a batch here, or have the thread run it."""
        if self._is_short(batch, replica):
            self._finish(outcome_of(batch, began_ms, self._ledger))
            return
        self._running, self._began_ms = batch, began_ms
        self._batches.put((batch, began_ms))

    def _is_short(self, batch: Batch, replica: Replica) -> bool:
        """Whether a batch is to run on the event loop.

        What it is predicted to take has the waking in it, in the thread also the hand-over: going
        by that alone, a variant that was once handed over would be for good.
        """
        if not replica.proven or batch.predicted_ms > MOST_INLINE_MS:
            return False
        return replica.runs_ms(batch.rows) <= self._inline_ms

    def _serve(self) -> None:
        """Run batches in the dedicated thread."""
        while (task := self._batches.get()) is not None:
            outcome = outcome_of(*task, self._ledger)
            try:
                self._loop.call_soon_threadsafe(self._finish, outcome)
            except RuntimeError:  # the loop was closed in the meantime
                return

    def _finish(self, outcome: Outcome) -> None:
        """Answer a batch and look for the next one, whatever goes wrong with this one."""
        replica, groups = outcome.replica, outcome.groups
        done_ms = now_ms()
        self._running = None
        errors: list[str] = []
        try:
            self.queue.finished(replica.queue, done_ms, outcome.took_ms)
            kept_waiting, self._kept_waiting = self._kept_waiting, self.queue.count > 0
            for group in groups:
                errors.append(self._answer(group, outcome))
            self._learn(outcome, done_ms, kept_waiting)  # by now who asked has the answer
        except Exception as error:
            sparing.error(replica.name, error, "after a batch of %s", replica.name)
            for group in groups[len(errors) :]:
                errors.append(mistake(error))
                for job in group.jobs:
                    self.refuse(job, ReplyCode.FAILED, errors[-1])
        if not all(errors):
            replica.failures = 0
            replica.proven = True
        elif not self.checking or asked(groups):
            replica.failures += 1
            sparing.warning(replica.name, "a batch of %s failed: %s", replica.name, errors[0])
            # One that is being unloaded is closed by the unload.
            if replica.failures >= FAILURES and replica.state is ReplicaState.READY:
                self._quarantine(replica, errors[0])
        if self.queue.count and not self._stepping:
            self._stepping = True
            self._loop.call_soon(self._step)

    def _answer(self, group: Group, outcome: Outcome) -> str:
        """Answer queries that ran together; what is wrong with the variant, empty if nothing is."""
        jobs, error = group.jobs, group.error
        for job in jobs:
            self._release(job)
        if not error:
            try:
                backlog_us = self.backlog_us()
                send_outputs(group, outcome.began_ms, outcome.run_ms, backlog_us, self._max_frame)
            except Exception as fault:
                name = outcome.replica.name
                sparing.error(name, fault, "answering a batch of %s", name)
                error = mistake(fault)
            else:
                if not group.broken:
                    return ""
                return f"{outcome.replica.name} gives no finite numbers any more"
        for job in jobs:
            theirs = group.of_query and not isinstance(job, LoneJob)
            code = ReplyCode.INVALID if theirs else ReplyCode.FAILED
            self._refuse(job.responder, job.request_id, code, error)
        return "" if group.of_query else error

    def _learn(self, outcome: Outcome, done_ms: float, kept_waiting: bool) -> None:
        """Take what was observed into the prediction, the popularity and the busy ratio."""
        replica, _, _, run_ms, took_ms, groups = outcome
        queue, group, began_ms = replica.queue, groups[0], outcome.began_ms
        queries, rows = len(group.jobs), group.rows
        for other in groups[1:]:
            queries, rows = queries + len(other.jobs), rows + other.rows
        if self.checking:
            queries = note_alone(outcome)
        if queries:
            replica.used(done_ms / 1000, queries, rows)
            self.usage.seen(replica.variant, done_ms / 1000, queries)
            if self.on_used is not None:
                self.on_used(replica)
        passed_ms = done_ms - self._busy_at_ms
        self._busy_ms = self._busy_ms * exp(-passed_ms / (BUSY_S * 1000)) + took_ms
        self._busy_at_ms = done_ms
        # What has numbers that are not finite may have run a second time, to see whose fault it is.
        clean = len(groups) == 1 and not group.error and group.bad is None
        if clean:
            replica.took(rows, run_ms, done_ms)
            if replica.answered is not None and queries:
                count_into(replica.answered, group.outputs[0])
        if not clean or not replica.proven:
            # Failing takes another time than running, and so does what a first batch sets up.
            self.costs.passed(queue, done_ms)
            return
        late = sum([job.deadline_ms < done_ms for job in group.jobs])
        self.costs.ran(
            queue, replica.model, rows, began_ms, took_ms,
            kept_waiting=kept_waiting, queries=queries, late=late,
        )  # fmt: skip

    def _quarantine(self, replica: Replica, error: str) -> None:
        replica.state = ReplicaState.QUARANTINED
        replica.quarantined_s = time.time()
        replica.message = f"{FAILURES} batches failed in a row; the last: {error}"
        sparing.error(replica.name, None, "%s is quarantined: %s", replica.name, replica.message)
        for item in self.queue.take(replica.queue):
            self.refuse(item, ReplyCode.QUARANTINED, replica.message)
        self.on_quarantine.append(replica)
        self.wake.set()

    def _take(self, job: Job) -> None:
        """Count a query that was admitted."""
        job.replica.in_flight += 1
        self._in_flight += 1
        self._held_bytes += job.layout.nbytes

    def refuse(self, item: Item, code: ReplyCode, message: str = "") -> None:
        """Answer an admitted query without tensors."""
        assert isinstance(item, Job)
        self._release(item)
        self._refuse(item.responder, item.request_id, code, message)

    def _refuse(self, responder: Responder, request_id: int, code: ReplyCode, message: str) -> None:
        send_refusal(responder, request_id, code, self.backlog_us(), message)

    def _release(self, job: Job) -> None:
        replica = job.replica
        replica.in_flight -= 1
        self._in_flight -= 1
        self._held_bytes -= job.layout.nbytes
        if not replica.in_flight and replica.idle is not None and not replica.idle.done():
            replica.idle.set_result(None)
        if not self._in_flight and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
