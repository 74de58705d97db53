"""Whatever messages come over gRPC: each call is answered or refused, and nothing is left of it.

A slice of it runs always. ``make campaign`` sends 10,000; ``pytest -s -m campaign`` with this file
prints what came of them, and ``MODELLESS_TEST_SEED`` sends other messages.
"""

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from controlplane.gateway.canaries.recent_answers import RecentAnswers
from controlplane.gateway.grpc.messages import METHODS, SERVICE, message_class
from controlplane.gateway.grpc.statuses import STATUSES
from tests.controlplane.gateway.grpc.calls import Stubs, request
from tests.controlplane.serving import ANSWER_S, FAST, KNOWN, LATE, Served, serving, until
from tests.ledger import SEED, Footprint, footprint, unheard
from tests.ports import free_port

AT_ONCE = 8
SLICE = 240
CAMPAIGN = 10_000
REMEMBERED = 256
MORE_OBJECTS, MORE_MIB = 2_000, 8.0
"""That the second half of a campaign may leave."""
TYPED = frozenset(STATUSES.values()) - {grpc.StatusCode.INTERNAL}
"""The statuses of errors; none that says nothing."""


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """Its variants give back the numbers that they get: others may make infinite ones of them."""
    known = [one for one in KNOWN if one.name in (FAST, LATE)]
    async with serving(short_folder, live_url, grpc_port=free_port(), known=known) as running:
        await running.worker("w1", FAST, LATE)
        yield running


def whole(random: Random) -> bytes:
    """A query before anything of it is changed."""
    named: dict[str, Any] = {"model_version": random.choice([FAST, FAST, "", LATE, "none"])}
    parameters: dict[str, Any] = {}
    if random.random() < 0.3:
        parameters["latency_slo_ms"] = random.choice([5, 50.0, -1, "x", True])
    if random.random() < 0.2:
        parameters["min_accuracy"] = random.choice([0.5, 2.0, "none"])
    rows = np.zeros((random.choice([1, 1, 2, 0]), 4), "<f4")
    made = request(rows, parameters=parameters, id="q" * random.choice([0, 3, 70]), **named)
    if random.random() < 0.3:  # as numbers, not as bytes
        made.raw_input_contents.clear()
        made.inputs[0].contents.fp32_contents.extend([1.0] * random.choice([4, 4, 3]))
    data: bytes = made.SerializeToString()
    return gzip.compress(data) if random.random() < 0.05 else data


def mutated(random: Random) -> bytes:
    data = bytearray(whole(random))
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        at, kind = random.randrange(len(data)), random.random()
        if kind < 0.7:
            changed = data[at] ^ (1 << random.randrange(8))
            data[at] = random.choice([0, 1, 0x7F, 0xFF, changed])
        elif kind < 0.85:
            del data[at : at + random.randrange(1, 6)]
        else:
            data[at:at] = data[at : at + random.randrange(1, 8)]
        if not data:
            return b""
    return bytes(data)


async def calls(stubs: Stubs, random: Random, count: int, told: Counter[str]) -> None:
    """Call one procedure after the other, and count what came of it."""
    plain = [method for method in METHODS if not method.streams]
    for _ in range(count):
        kind = random.random()
        if kind < 0.1:
            await _stream(stubs, random, told)
            continue
        method = (
            random.choice(plain) if kind < 0.3 else next(m for m in plain if m.name == "ModelInfer")
        )
        if method.name.startswith("RepositoryModel"):
            continue  # it would load and unload what the others ask for
        told["messages"] += 1
        ask = stubs.channel.unary_unary(
            f"/{SERVICE}/{method.name}",
            response_deserializer=message_class(method.reply).FromString,
        )
        call = ask(mutated(random), timeout=ANSWER_S)
        if random.random() < 0.05:
            await asyncio.sleep(0)
            call.cancel()
        try:
            await call
        except grpc.aio.AioRpcError as error:
            told[_status(error)] += 1
        except asyncio.CancelledError:
            told["cancelled"] += 1
        else:
            told["ok"] += 1


async def _stream(stubs: Stubs, random: Random, told: Counter[str]) -> None:
    """A stream of messages of which each has one answer."""
    messages = [mutated(random) for _ in range(random.choice([1, 2, 5]))]
    told["messages"] += len(messages)
    reply = message_class("ModelStreamInferResponse")
    ask = stubs.channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer", response_deserializer=reply.FromString
    )
    came = 0
    async for one in ask(_each(messages), timeout=ANSWER_S):
        came += 1
        told["error in a stream" if one.error_message else "ok"] += 1
        if one.error_message and one.error_message.partition(":")[0] not in STATUSES:
            told[f"WRONG {one.error_message!r}"] += 1
    if came != len(messages):
        told[f"WRONG {came} answers to {len(messages)} messages"] += 1


def _each(messages: list[bytes]) -> Iterator[bytes]:
    yield from messages


def _status(error: grpc.aio.AioRpcError) -> str:
    """How a call failed; one that must not is ``WRONG``."""
    code, text = error.code(), error.details() or ""
    typed = code in TYPED and text.partition(":")[0] in STATUSES
    return str(code.name) if typed else f"WRONG {code} {text}"


async def send(stubs: Stubs, messages: int, part: int = 0) -> Counter[str]:
    told: Counter[str] = Counter()
    randoms = [Random(f"{SEED} {part} {number}") for number in range(AT_ONCE)]
    await asyncio.gather(*(calls(stubs, one, messages // AT_ONCE, told) for one in randoms))
    return told


async def nothing_is_left(served: Served, stubs: Stubs) -> None:
    path = served.gateway.path
    await until(lambda: not served.in_flight and not path.departures.others)
    assert (len(path.guard), path.held_bytes) == (0, 0)
    await stubs.infer(request(model_version=FAST))


def wrong(told: Counter[str]) -> list[str]:
    return [key for key in told if key.startswith("WRONG")]


@pytest.mark.slow
async def test_whatever_messages_come_are_answered_or_refused(served: Served, stubs: Stubs) -> None:
    with unheard() as failures:
        told = await send(stubs, SLICE)
        await nothing_is_left(served, stubs)
    assert (wrong(told), failures) == ([], [])
    assert told["ok"] > SLICE // 8
    assert told["INVALID_ARGUMENT"] > SLICE // 8


@pytest.mark.campaign
@pytest.mark.slow
async def test_the_whole_campaign_of_messages_leaves_no_more_than_its_first_half(
    served: Served, stubs: Stubs
) -> None:
    served.gateway.path.answers = RecentAnswers(REMEMBERED)
    held: list[Footprint] = []
    with unheard() as failures:
        for part in (1, 2):
            told = await send(stubs, CAMPAIGN // 2, part)
            await nothing_is_left(served, stubs)
            held.append(footprint())
            print(f"{dict(told)}")
            assert wrong(told) == []
    print(f"the second half has left {held[1].over(held[0])}")
    assert failures == []
    assert held[1].objects - held[0].objects < MORE_OBJECTS
    assert held[1].resident_mib - held[0].resident_mib < MORE_MIB
