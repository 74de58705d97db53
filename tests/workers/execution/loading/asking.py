"""Variants of half of a worker's memory, queries for them, and what is wrong with some."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.workers.builders import echo_spec, row, vid
from variants.types import VariantName
from workers.channel.frames import HEADER, Chunk, infer_frame, layout_of, unpack_infer, unpack_reply
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.types import LoadSpec


class Answers:
    """Keeps the codes of all replies."""

    tag = b"none"

    def __init__(self) -> None:
        self.codes: list[int] = []

    def send(self, frame: bytes) -> None:
        self.codes.append(unpack_reply(frame)[2])

    def answer(self, chunks: list[Chunk]) -> None:
        self.send(b"".join(chunks))


def half(name: str, **options: str) -> LoadSpec:
    return replace(echo_spec(options=options), variant=VariantName(name), memory_mib=50.0)


def ask(executor: Executor, spec: LoadSpec) -> Answers:
    answers = Answers()
    frame = b"".join(infer_frame(1, vid(spec), 1, 60 * 10**6, row(1)))
    _, _, _, described, request_id, rows, variant, budget_us, *_ = unpack_infer(frame)
    base = HEADER + described
    executor.submit(
        variant, rows, budget_us, layout_of(frame[HEADER:base]), frame, base, answers, request_id
    )
    return answers


def loaded(executor: Executor) -> set[str]:
    return {str(replica.spec.variant) for replica in executor.replicas.values()}


def damage(path: Path) -> bytes:
    """Change a byte of the weights, so that the model would triple; what was there."""
    whole = path.read_bytes()
    two, three = (b"J\x04" + np.float32(number).tobytes() for number in (2, 3))
    assert whole.count(two) == 1
    path.write_bytes(whole.replace(two, three))
    return whole


def states(loading: Loading) -> dict[str, tuple[str, str]]:
    now_s = 0.0
    found = [replica.status(now_s) for replica in loading.executor.replicas.values()]
    return {str(one.variant): (one.state.value, one.message) for one in found}
