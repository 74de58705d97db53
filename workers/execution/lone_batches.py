"""Lone batches: how a worker finds out what a variant takes that gets no queries.

Latencies are learned from batches that run. Where a profile says far more than a variant takes, its
queries are refused or go elsewhere, and nothing would ever be learned. So the control loop has a
few batches of one row run (``controlplane.controller.profiles.profile_checks``), of made-up numbers
like those that profiles are measured with. What they take goes the way of all batches, into the
live model and from there to gateways and plans; but they are no use of the variant. A row that
fails is not held against it. One that crashes the worker or hangs in it is, as a query's would be
(``workers.process.quarantine``): after the first such the variant is checked no more for a day,
unless it has answered a query since it was loaded.

*What it costs.* A batch begins only while the slice has nothing to do, and then as much time passes
as four such take. ``FEW`` batches are enough to see that a variant takes what is expected of it, or
more. Only what is far quicker goes on, until live correction believes it in full; then a few larger
batches show whether they are quicker as well, or only a single row was measured wrongly.
"""

import asyncio
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import numpy as np

from planner.live_model import SHIFTED
from variants.errors import NotFound, Overloaded, RuntimeFailed
from variants.types import ReplicaState
from workers.channel.frames import Chunk, Layout, data_chunks, layout_of, signature_of
from workers.execution.executor import Executor
from workers.execution.outcomes import now_ms
from workers.execution.replicas import LoneJob, Replica
from workers.types import FEW, Checked, ReplyCode, variant_id

MANY = 10
"""Batches of one that is far quicker than expected, which ``FEW`` tell: twice what the live model
takes to forget what it believed, and more than live correction needs
(``planner.reconcile.corrections.correction.ENOUGH``)."""
QUICKER = 1.25
"""What takes less than what is expected of it, over this, is far quicker."""
MOST_MS = 1_000.0
"""What all batches of a check take together, at most; one may take longer, and ``FEW`` that are far
quicker than expected."""
LARGER = 2.0
"""A larger batch that by its profile takes no longer than so many times what a row is expected to
take is run as well where a row is far quicker: else its time would be guessed from the row's."""
REST = 4.0
"""Time between two batches, in times of the one before."""
LEAST_REST_MS = 5.0
"""The least of it: they are to come after idling, as lone queries do."""
PATIENCE_MS = 5_000.0
"""How long an idle moment is waited for."""


class LoneBatches:
    """Of one worker, which checks one profile at a time."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._number = 0

    async def check(self, task: str, variant: str) -> Checked:
        """Run a few batches of a variant, one by one.

        Raises:
            NotFound: it is not ready here.
            Overloaded: another profile is being checked, or the slice is never idle.
            RuntimeFailed: it failed, or has crashed a worker lately and run no query here since.
        """
        executor, name = self._executor, f"{task}/{variant}"
        replica = executor.replicas.get(variant_id(task, variant))
        if replica is None or replica.state is not ReplicaState.READY:
            raise NotFound(f"{name} is not ready here")
        if executor.checking:
            raise Overloaded("another profile is being checked here")
        if not replica.uses and executor.has_crashed(replica):
            raise RuntimeFailed(f"{name} has crashed a worker lately: no check before a query")
        executor.checking = True
        try:
            took_ms, larger_ms = await self._run(replica)
        finally:
            executor.checking = False
        if not took_ms:
            raise Overloaded(f"this worker had no idle moment to check {name}")
        return Checked(
            batches=len(took_ms),
            took_ms=round(median(took_ms[1:] or took_ms), 5),
            spent_ms=round(sum(took_ms) + sum(larger_ms), 5),
            total=replica.live.batches,
        )

    async def _run(self, replica: Replica) -> tuple[list[float], list[float]]:
        """What each batch took in ms: those of one row, and those of more."""
        believed_ms, quicker = _believed_ms(replica), False
        larger = _larger(replica, believed_ms)
        row = _rows(replica, 1)
        took_ms: list[float] = []
        while len(took_ms) < MANY:
            if (ms := await self._run_one(replica, row, *took_ms[-1:])) is None:
                return took_ms, []
            took_ms.append(ms)
            quicker = median(took_ms[1:] or took_ms) * QUICKER < believed_ms
            if len(took_ms) >= FEW and (not quicker or sum(took_ms) > MOST_MS):
                break
            if not quicker and ms > MOST_MS:
                break
        larger_ms: list[float] = []
        if quicker and larger > 1 and sum(took_ms) <= MOST_MS:
            rows = _rows(replica, larger)
            while len(larger_ms) < SHIFTED and sum(larger_ms) <= MOST_MS:
                if (ms := await self._run_one(replica, rows, *larger_ms[-1:])) is None:
                    break
                larger_ms.append(ms)
        return took_ms, larger_ms

    async def _run_one(
        self, replica: Replica, rows: "_Rows", after_ms: float = 0.0
    ) -> float | None:
        """Rest after a batch that took ``after_ms``, and run one in the next idle moment; what it
        took in ms, or None where there is no such moment.

        Raises:
            RuntimeFailed: it failed.
        """
        await asyncio.sleep(max(LEAST_REST_MS, REST * after_ms) / 1_000)
        self._number += 1
        answer, now = _Answer(), now_ms()
        job = LoneJob(replica, now + 1e6, now, rows.layout, rows.data, 0, answer, self._number)
        if not await self._run_when_idle(job):
            return None
        code = await answer.code
        if code == ReplyCode.FAILED:
            raise RuntimeFailed(f"{replica.name} failed on numbers that its profile is checked by")
        if code not in (ReplyCode.OK, ReplyCode.INVALID):
            return None
        replica.checks += 1
        return job.took_ms

    async def _run_when_idle(self, job: LoneJob) -> bool:
        """Run a batch in the next idle moment; False where there is none soon."""
        executor, until_ms = self._executor, now_ms() + PATIENCE_MS
        while not executor.run_alone(job):
            left_ms = until_ms - now_ms()
            if left_ms <= 0 or executor.draining or job.replica.state is not ReplicaState.READY:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1_000):
                    await executor.quiet()
            await asyncio.sleep(0)
        return True


def _believed_ms(replica: Replica) -> float:
    """What a lone batch of one row is expected to take: the profile's median before any ran."""
    known = replica.model.points()
    return known[0].mean_ms if known and known[0].rows == 1 else replica.profiled_ms


def _larger(replica: Replica, believed_ms: float) -> int:
    """The largest batch, a power of two, that takes little longer than a row by its profile."""
    rows = 1
    while 2 * rows <= replica.queue.max_batch and replica.typical_ms(2 * rows) <= (
        LARGER * believed_ms
    ):
        rows *= 2
    return rows


class _Rows(NamedTuple):
    """Made-up numbers."""

    layout: Layout
    data: bytes


def _rows(replica: Replica, count: int) -> _Rows:
    rng = np.random.default_rng(0)
    specs = replica.spec.inputs
    made = [rng.random((count, *spec.shape)).astype(spec.dtype) for spec in specs]
    return _Rows(layout_of(signature_of(made)), b"".join(data_chunks(made)[0]))


class _Answer:
    """Where the answer to a batch goes: all that matters is whether there is one."""

    tag = bytes(4)

    def __init__(self) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send(self, frame: bytes) -> None:
        """A refusal: its code is the sixth byte. ``INVALID`` is an answer that is too large to be
        sent; the batch has run all the same."""
        self._is(frame[5])

    def answer(self, chunks: list[Chunk]) -> None:
        self._is(ReplyCode.OK)

    def _is(self, code: int) -> None:
        if not self.code.done():  # cancelled, where the worker stops meanwhile
            self.code.set_result(code)
