"""A queue under which a profile changes, and one that makes mistakes, in a worker."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from planner.batching.deadline_queue import DeadlineQueue
from tests.workers.builders import echo_spec, row, vid
from variants.errors import Internal
from workers.channel.frames import HEADER, Chunk, infer_frame, layout_of, unpack_infer, unpack_reply
from workers.execution.batch_runner import MISTAKES
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.types import LoadSpec, ReplyCode

SPEC = replace(
    echo_spec(options={"latency_ms": "20"}), latency=((1, 20.0), (8, 40.0)), longest_batch_ms=200.0
)


class Answer:
    """Adds the code of a query's reply to others."""

    tag = b"none"

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes

    def send(self, frame: bytes) -> None:
        self.codes.append(unpack_reply(frame)[2])

    def answer(self, chunks: list[Chunk]) -> None:
        self.send(b"".join(chunks))


def ask(executor: Executor, spec: LoadSpec, budgets_ms: Sequence[float]) -> list[int]:
    """The codes of replies, as they come."""
    codes: list[int] = []
    for budget_ms in budgets_ms:
        frame = b"".join(infer_frame(1, vid(spec), 1, int(budget_ms * 1_000), row(1)))
        _, _, _, described, request_id, rows, variant, budget_us, *_ = unpack_infer(frame)
        base = HEADER + described
        layout = layout_of(frame[HEADER:base])
        answer = Answer(codes)
        executor.submit(variant, rows, budget_us, layout, frame, base, answer, request_id)
    return codes


@pytest.mark.parametrize("budget_ms", [150.0, 300.0, 60_000.0])
async def test_a_profile_with_smaller_batches_comes_while_queries_wait(
    loading: Loading, budget_ms: float
) -> None:
    executor = loading.executor
    await loading.load(SPEC)
    codes = ask(executor, SPEC, [budget_ms + 5.0 * n for n in range(17)])
    admitted = executor.in_flight

    await loading.load(replace(SPEC, latency=((1, 20.0), (4, 30.0))))
    await executor.quiet()
    assert len(codes) == 17
    assert admitted > 1
    assert set(codes) <= {ReplyCode.OK, ReplyCode.EXPIRED, ReplyCode.OVERLOADED}
    executor.check()


class Mistaken(DeadlineQueue):
    """Fails to form so many batches."""

    mistakes = 0

    def next_batch(self, now_ms: float) -> Any:
        if self.mistakes:
            self.mistakes -= 1
            raise IndexError("a mistake")
        return super().next_batch(now_ms)


async def mistaken(loading: Loading, times: int) -> list[int]:
    executor = loading.executor
    assert isinstance(executor.queue, DeadlineQueue)
    executor.queue.__class__ = Mistaken
    executor.queue.mistakes = times  # type: ignore[attr-defined]
    await loading.load(SPEC)
    return ask(executor, SPEC, [60_000.0] * 4)


async def test_a_mistake_in_forming_a_batch_loses_no_query(loading: Loading) -> None:
    codes = await mistaken(loading, MISTAKES - 1)
    await loading.executor.quiet()
    assert codes == [ReplyCode.OK] * 4
    loading.executor.check()


async def test_a_worker_that_forms_no_batch_is_broken(loading: Loading) -> None:
    await mistaken(loading, MISTAKES)
    for _ in range(2 * MISTAKES):
        await asyncio.sleep(0)
    with pytest.raises(Internal, match="no batch could be formed 3 times in a row"):
        loading.executor.check()
