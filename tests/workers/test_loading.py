"""Making room for a load, without a socket."""

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from tests.workers.builders import echo_spec, row, vid
from variants.errors import Overloaded
from variants.types import VariantName
from workers.executor import Executor
from workers.frames import HEADER, Chunk, infer_frame, layout_of, unpack_infer, unpack_reply
from workers.loading import Loading
from workers.quarantine import CrashLedger
from workers.types import LoadSpec, ReplyCode


class Answers:
    """Keeps the codes of all replies."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def send(self, frame: bytes) -> None:
        self.codes.append(unpack_reply(frame)[2])

    def send_large(self, chunks: list[Chunk]) -> None:
        self.send(b"".join(chunks))


@pytest.fixture
async def loading() -> AsyncIterator[Loading]:
    """100 MiB in which everything may leave at once."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    made = Loading(executor, ledger, 100.0, 1, min_residency_s=0.0)
    yield made
    await executor.stop()
    made.shutdown()


def half(name: str, **options: str) -> LoadSpec:
    return replace(echo_spec(options=options), variant=VariantName(name), memory_mib=50.0)


def ask(executor: Executor, spec: LoadSpec) -> Answers:
    answers = Answers()
    frame = b"".join(infer_frame(1, vid(spec), 1, 10**6, row(1)))
    _, _, _, described, request_id, rows, variant, budget_us, _ = unpack_infer(frame)
    base = HEADER + described
    executor.submit(
        variant, rows, budget_us, layout_of(frame[HEADER:base]), frame, base, answers, request_id
    )
    return answers


def loaded(executor: Executor) -> set[str]:
    return {str(replica.spec.variant) for replica in executor.replicas.values()}


async def test_what_is_idle_leaves_for_an_on_demand_load(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("idle"))
    await loading.load(half("busy", latency_ms="50"))
    answers = ask(executor, half("busy"))
    await loading.load(half("new"), make_room=True)
    assert loaded(executor) == {"busy", "new"}
    assert loading.reserved_mib == 100.0
    await executor.quiet()
    assert answers.codes == [ReplyCode.OK]


async def test_a_planned_load_evicts_nobody(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    with pytest.raises(Overloaded, match=r"0\.0 MiB are free"):
        await loading.load(half("c"))


async def test_what_is_in_use_never_leaves(loading: Loading) -> None:
    executor = loading.executor
    for name in ("a", "b"):
        await loading.load(half(name, latency_ms="50"))
    for name in ("a", "b"):
        ask(executor, half(name))
    with pytest.raises(Overloaded):
        await loading.load(half("c"), make_room=True)
    assert loaded(executor) == {"a", "b"}
    await executor.quiet()


async def test_what_is_larger_than_the_worker_evicts_nobody(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("a"))
    with pytest.raises(Overloaded):
        await loading.load(replace(half("huge"), memory_mib=101.0), make_room=True)
    assert loaded(executor) == {"a"}
    assert np.isclose(loading.reserved_mib, 50.0)
