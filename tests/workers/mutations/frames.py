"""Frames of all kinds, and what becomes of them when bytes of them are changed."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.workers.builders import row
from workers.channel.frames import FrameKind, infer_frame, infer_lent_frame, small_frame

IDS = (1, 2, 3)
"""Of queries that are under way."""
TO_WORKERS = (
    FrameKind.WITHDRAW, FrameKind.WITHDRAW, FrameKind.CLIENT, FrameKind.FOLLOW, FrameKind.LEND,
    FrameKind.HISTORY, FrameKind.CHECK, FrameKind.READMIT, FrameKind.UNLOAD, FrameKind.LOAD,
    FrameKind.JOINED, FrameKind.QUEUE, FrameKind.REPLY, FrameKind.STATUS, FrameKind.HELLO,
    FrameKind.AUTH, FrameKind.ANSWER,
)  # fmt: skip
"""All but those that have the worker leave."""
TO_GATEWAYS = (
    FrameKind.STATUS, FrameKind.QUEUE, FrameKind.ANSWER, FrameKind.REPLY, FrameKind.HELLO,
    FrameKind.AUTH_OK, FrameKind.INFER, FrameKind.WITHDRAW,
)  # fmt: skip
LEAVES = int(FrameKind.DRAIN)
KIND = 4
"""Where a frame says which kind it is."""


def infer(random: Random, variant: int) -> bytes:
    """A query as a gateway asks it."""
    request_id = random.choice([*IDS, random.getrandbits(32)])
    rows = random.choice([1, 1, 1, 2])
    budget_us = random.choice([100, 10_000, 1_000_000, 2**32 - 1])
    priority = random.choice([1, 100, 65_535])
    until, client = random.random() < 0.1, random.choice([0, 1, 7])
    if random.random() < 0.1:
        lies_at = random.choice([0, 8, 2**20, 2**63])
        return infer_lent_frame(
            request_id, variant, rows, budget_us, b"\x01\x02\0\0" + bytes(12), lies_at
        )
    chunks = infer_frame(
        request_id, variant, rows, budget_us, row(1, 2), priority, until, client
    )  # fmt: skip
    return b"".join(chunks)


def control(random: Random, kinds: Sequence[FrameKind]) -> bytes:
    """A frame without tensors, whose message is that of some kind, or of none."""
    wrong: Any = random.choice([0, -1, 2**62, 1.5, None, "x", [], {}])
    messages: list[Any] = [
        {},
        [],
        {"told": [], "after": wrong},
        {"name": "a", "weight": wrong},
        {"every_ms": wrong, "replies": wrong, "every_s": wrong},
        {"task": "task", "variant": "v", "queries": wrong, "waiting": wrong, "seen": wrong},
        {"spec": wrong, "make_room": wrong},
        {"fd": random.choice([0, 3, 9_999]), "size": wrong, "pid": 1, "file": wrong},
    ]
    payload = json.dumps(random.choice(messages)).encode()
    if random.random() < 0.2:
        payload = random.randbytes(random.randrange(40))
    request_id = random.choice([*IDS, random.getrandbits(32)])
    return small_frame(random.choice(kinds), payload, request_id=request_id)


def mutated(frame: bytes, random: Random) -> bytes:
    """A frame with bytes changed, mostly behind its length, and sometimes cut or made longer."""
    data = bytearray(frame)
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        at = random.randrange(KIND if random.random() < 0.9 else 0, len(data))
        changed = data[at] ^ (1 << random.randrange(8))
        data[at] = random.choice([0, 1, 255, changed, random.randrange(256)])
    if random.random() < 0.05:
        del data[random.randrange(len(data)) :]
    if random.random() < 0.05:
        data += random.randbytes(8 * random.randrange(1, 4))
    return bytes(data)
