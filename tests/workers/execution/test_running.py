"""Running batches: what is run again when one fails, and what not."""

import asyncio
import logging
from collections.abc import Sequence

import numpy as np
import pytest

from planner.batching.variant_queues import VariantQueue
from planner.latency_table import LatencyTable
from tests.workers.builders import echo_spec
from variants.errors import RuntimeFailed
from workers.channel.frames import Chunk, layout_of, signature_of
from workers.execution.replicas import Job, Replica
from workers.execution.running import Group, _broken_rows, run_batch
from workers.finite import FEW
from workers.runtimes.protocol import Tensor

POISON = 13.0


class Recorder:
    """A runtime that fails on a batch with the number 13 and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[float]] = []

    def load(self) -> None:
        """Nothing to load."""

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.asked.append([float(value) for value in inputs[0][:, 0]])
        if POISON in inputs[0]:
            raise RuntimeFailed("poison")
        return [inputs[0].copy()]

    def close(self) -> None:
        """Nothing to give back."""


class InPieces(Recorder):
    """One that copies its rows in any case, and takes them as queries brought them."""

    def run_pieces(self, inputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        self.pieces = [len(piece) for piece in inputs[0]]
        return self.run([np.concatenate(pieces) for pieces in inputs])


class NoAnswer:
    """Takes answers and forgets them."""

    tag = b"none"

    def send(self, frame: bytes) -> None:
        """Forget a frame."""

    def answer(self, chunks: list[Chunk]) -> None:
        """Forget frames."""


async def ran(values: list[float], *, clock_ms: float = 0.0) -> tuple[Recorder, list[Group]]:
    """One query for each value, with deadlines at 100 ms."""
    runtime = Recorder()
    return runtime, ran_by(runtime, values, clock_ms=clock_ms)


def ran_by(
    runtime: Recorder, values: list[float], *, rows: int = 1, clock_ms: float = 0.0
) -> list[Group]:
    """The same by a runtime of one's own, each query of so many rows."""
    queue = VariantQueue.detached("task", LatencyTable([(8, 1.0)]))
    replica = Replica(echo_spec(), queue, runtime, 0.0)
    jobs = []
    for number, value in enumerate(values):
        tensor = np.full((rows, 4), value, dtype=np.float32)
        layout = layout_of(signature_of([tensor]))
        jobs.append(Job(replica, 100.0, 0.0, layout, tensor.tobytes(), 0, NoAnswer(), number))
    return run_batch(replica, jobs, rows * len(jobs), lambda: clock_ms)


def test_a_batch_that_succeeds_runs_once() -> None:
    runtime, groups = asyncio.run(ran([1, 2, 3]))
    assert runtime.asked == [[1, 2, 3]]
    assert [(g.rows, g.error) for g in groups] == [(3, "")]


def test_a_batch_that_fails_is_halved_until_the_bad_query_is_alone() -> None:
    runtime, groups = asyncio.run(ran([1, 2, 3, 4, 5, POISON, 7, 8]))
    assert runtime.asked == [
        [1, 2, 3, 4, 5, 13, 7, 8], [1, 2, 3, 4], [5, 13, 7, 8], [5, 13], [5], [13],
        [1], [13], [7, 8],  # what was answered before, and once more the one that failed
    ]  # fmt: skip
    assert [([j.request_id for j in g.jobs], g.error, g.of_query) for g in groups] == [
        ([0, 1, 2, 3], "", False), ([4], "", False), ([5], "poison", True), ([6, 7], "", False),
    ]  # fmt: skip


class Faulty(Recorder):
    """One that fails in some of its runs, whatever it is asked."""

    def __init__(self, *fails: bool) -> None:
        super().__init__()
        self._fails = iter(fails)

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if next(self._fails, False):
            raise RuntimeFailed("no memory")
        return super().run(inputs)


async def test_a_variant_that_fails_on_other_numbers_too_is_to_blame() -> None:
    [group] = ran_by(Faulty(True, True, True), [1], rows=3)
    assert (group.error, group.of_query) == ("no memory", False)


async def test_a_failure_that_does_not_come_again_is_nobodys() -> None:
    runtime = Faulty(True)
    [group] = ran_by(runtime, [1], rows=3)
    assert runtime.asked == [[0, 0, 0], [1, 1, 1]]  # as many rows of zeros, then the query
    assert (group.error, group.of_query) == ("", False)


async def test_queries_are_not_put_together_for_a_runtime_that_takes_pieces() -> None:
    runtime = InPieces()
    groups = ran_by(runtime, [1, 2, 3], rows=2)
    assert runtime.pieces == [2, 2, 2]
    assert runtime.asked == [[1, 1, 2, 2, 3, 3]]
    np.testing.assert_array_equal(groups[0].outputs[0][:, 0], [1, 1, 2, 2, 3, 3])


async def test_a_query_that_is_alone_is_run_as_it_is() -> None:
    runtime = InPieces()
    groups = ran_by(runtime, [1])
    assert not hasattr(runtime, "pieces")
    assert groups[0].rows == 1


async def test_pieces_that_fail_are_halved_too() -> None:
    runtime = InPieces()
    groups = ran_by(runtime, [1, POISON, 3])
    assert runtime.asked == [[1, 13, 3], [1], [13, 3], [13], [1], [13], [3]]
    assert [g.error for g in groups] == ["", "poison", ""]


def test_what_is_late_is_not_run_again() -> None:
    runtime, groups = asyncio.run(ran([1, POISON], clock_ms=101.0))
    assert runtime.asked == [[1, 13], [0, 0]]
    assert [(len(g.jobs), g.error, g.of_query) for g in groups] == [(2, "poison", True)]


class Wordy(Recorder):
    """One that says what no frame and no status can carry as it is."""

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        raise OSError("no\nsuch file: \udcff")


def test_what_a_back_end_says_becomes_a_line_that_can_be_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Processes that run tests for others cannot send such a text either.
    caplog.set_level(logging.CRITICAL, "workers.execution.running")

    async def error() -> str:
        return ran_by(Wordy(), [1])[0].error

    assert asyncio.run(error()) == r"task/v failed: OSError: no\nsuch file: \udcff"


@pytest.mark.parametrize("count", [1, 10, FEW, FEW + 1])
def test_one_number_among_all_is_seen_not_to_be_finite(count: int) -> None:
    for at in {0, count // 2, count - 1}:
        outputs = np.ones((1, count), np.float32)
        assert _broken_rows([outputs]) is None
        outputs[0, at] = np.nan
        assert _broken_rows([outputs]) is not None
