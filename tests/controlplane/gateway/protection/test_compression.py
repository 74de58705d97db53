"""Compression: what comes back is what was sent, and a bomb is refused before it has gone off."""

import asyncio
import gzip
import os
import threading
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.protection.compression import (
    AT_ONCE,
    LEAST_PACKED,
    MOST,
    MOST_BYTES,
    MOST_PACKED,
    ON_LOOP,
    WORK_S,
    Body,
    Inflater,
    Inflation,
    accepted,
    packed,
)
from tests.controlplane.serving import until
from variants.errors import Internal, InvalidInput, ModellessError, Overloaded, PayloadTooLarge

MAX_BODY = 2**20


@pytest.fixture
def inflater() -> Iterator[Inflater]:
    unpacking = Inflater(MAX_BODY, wait_s=60.0)
    yield unpacking
    unpacking.close()


@pytest.mark.parametrize("size", [0, 1, 1_000, AT_ONCE, AT_ONCE + 1, MAX_BODY])
@pytest.mark.parametrize("data", [b"0.25, ", os.urandom(997)], ids=["alike", "random"])
async def test_a_body_comes_as_it_was(inflater: Inflater, size: int, data: bytes) -> None:
    body = (data * (size // len(data) + 1))[:size]
    assert await inflater.inflated(gzip.compress(body), b"gzip") == body
    assert await inflater.inflated(gzip.compress(body), b" X-GZIP") == body
    assert await inflater.inflated(zlib.compress(body), b"Deflate") == body
    assert await inflater.inflated(body, b"identity") == body


@pytest.mark.parametrize("times", [2, 100])
async def test_a_bomb_is_refused_before_it_is_unpacked(inflater: Inflater, times: int) -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(stream.compress(bytes(MAX_BODY)) for _ in range(times)) + stream.flush()
    with pytest.raises(PayloadTooLarge, match="the body unpacks to more than 1 MiB"):
        await inflater.inflated(bomb, b"gzip")
    inflation = Inflation(bomb, b"gzip", MAX_BODY)
    with pytest.raises(PayloadTooLarge):
        inflation.go_on(float("inf"))
    assert len(inflation.body) == MAX_BODY + 1


WHOLE = gzip.compress(os.urandom(200_000))
OTHER_CHECK = WHOLE[:-8] + bytes(byte ^ 1 for byte in WHOLE[-8:])


@pytest.mark.parametrize(
    ("data", "coding", "why"),
    [
        (b"", b"gzip", "the body is no gzip: it ends too early"),
        (WHOLE[:-1], b"gzip", "the body is no gzip: it ends too early"),
        (WHOLE[:100_000], b"gzip", "the body is no gzip: it ends too early"),
        (WHOLE + b"x", b"gzip", "the body is no gzip: something follows behind its end"),
        (WHOLE + WHOLE, b"gzip", "the body is no gzip: something follows behind its end"),
        (OTHER_CHECK, b"gzip", "the body is no gzip: incorrect data check"),
        (WHOLE, b"deflate", "the body is no deflate: incorrect header check"),
        (b"{}" * 9, b"gzip", "the body is no gzip: incorrect header check"),
        (WHOLE, b"br", "Content-Encoding 'br' is not supported; gzip and deflate are"),
        (WHOLE, b"gzip, gzip", "Content-Encoding 'gzip, gzip' is not supported"),
    ],
)
async def test_what_is_wrong_is_said(
    inflater: Inflater, data: bytes, coding: bytes, why: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^{why}"):
        await inflater.inflated(data, coding)


@given(st.binary(max_size=300), st.sampled_from([b"gzip", b"deflate"]))
def test_any_bytes_get_a_typed_answer(data: bytes, coding: bytes) -> None:
    try:
        assert Inflation(data, coding, 1_000).go_on(float("inf"))
    except (InvalidInput, PayloadTooLarge):
        return


async def test_a_short_one_is_there_at_once_and_of_long_ones_only_so_many_wait(
    inflater: Inflater,
) -> None:
    found: list[Body | ModellessError] = []
    inflater.inflate(gzip.compress(bytes(AT_ONCE // 2)), b"gzip", found.append)
    assert found == [bytes(AT_ONCE // 2)]
    for _ in range(MOST + 1):
        inflater.inflate(gzip.compress(bytes(MAX_BODY)), b"gzip", found.append)
    assert isinstance(found[1], Overloaded)
    await until(lambda: len(found) == MOST + 2)
    assert found[2:] == [bytes(MAX_BODY)] * MOST
    await asyncio.sleep(0)
    inflater.inflate(gzip.compress(bytes(MAX_BODY)), b"gzip", found.append)
    await until(lambda: len(found) == MOST + 3)


EMPTY = b"\x1f\x8b\x08" + bytes(6) + b"\xff" + b"\x00\x00\x00\xff\xff" * 2**18
"""A body of more than 1 MiB of blocks that hold nothing, and no end."""


def test_what_takes_long_and_holds_little_is_given_up_after_a_few_pieces() -> None:
    times = iter(range(1_000))
    inflation = Inflation(EMPTY, b"gzip", MAX_BODY, lambda: next(times) * WORK_S / 4)
    with pytest.raises(InvalidInput, match="takes too long to be unpacked"):
        inflation.go_on(float("inf"))
    assert next(times) == 6  # looks: the beginning, and before each of five pieces
    assert not inflation.body


async def test_only_short_bodies_are_begun_on_the_event_loop(
    inflater: Inflater, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[tuple[int, bool]] = []
    go_on = Inflation.go_on

    def seen(inflation: Inflation, until: float) -> bool:
        own = threading.current_thread() is threading.main_thread()
        threads.append((len(inflation._packed), own))
        return go_on(inflation, until)

    monkeypatch.setattr(Inflation, "go_on", seen)
    for size in (ON_LOOP, ON_LOOP + 1, len(EMPTY)):
        with pytest.raises(InvalidInput):
            await inflater.inflated(EMPTY[:size], b"gzip")
    assert [own for size, own in threads if size <= ON_LOOP] == [True]
    assert [own for size, own in threads if size > ON_LOOP] == [False, False]


async def test_who_waits_too_long_is_told_so_and_his_body_is_dropped() -> None:
    go = threading.Event()
    inflater = Inflater(MAX_BODY, wait_s=0.01)
    inflater._thread.submit(go.wait)
    try:
        with pytest.raises(Overloaded, match="could not be unpacked soon enough"):
            await inflater.inflated(gzip.compress(bytes(MAX_BODY)), b"gzip")
        assert inflater._under_way == 1
    finally:
        go.set()
    await until(lambda: inflater._under_way == inflater._bytes == 0)
    inflater.close()


async def test_a_failure_of_ours_is_an_answer(
    inflater: Inflater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Inflation, until: float) -> bool:
        raise MemoryError(until)

    monkeypatch.setattr(Inflation, "go_on", failing)
    with pytest.raises(Internal):
        await inflater.inflated(bytes(ON_LOOP + 1), b"gzip")


async def test_what_waits_has_so_many_bytes(inflater: Inflater) -> None:
    inflater._bytes = MOST_BYTES - ON_LOOP
    with pytest.raises(Overloaded, match="too many compressed bodies"):
        await inflater.inflated(EMPTY[: ON_LOOP + 1], b"gzip")
    inflater._bytes = 0


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        (b"", b""),
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"Gzip, deflate, br", b"gzip"),
        (b"gzip;q=0.5, deflate", b"deflate"),
        (b"gzip;q=0, *;q=0.1", b"deflate"),
        (b"gzip; q=0", b""),
        (b"*", b"gzip"),
        (b"identity, gzip;q=0.5", b""),
        (b"br", b""),
        (b"gzip;q=x", b""),
        (b"gzip" + b"," * 252, b"gzip"),
        (b"gzip" + b"," * 253, b""),
    ],
)
def test_the_coding_that_a_client_takes(header: bytes, coding: bytes) -> None:
    assert accepted(header) == coding


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_an_answer_is_compressed_where_that_is_worth_it(coding: bytes) -> None:
    for size in (LEAST_PACKED, MOST_PACKED):
        body = (b"0.25, " * size)[:size]
        small, headers = packed(body, b"a: b\r\n", coding)
        assert len(small) < size / 10
        assert headers == b"a: b\r\ncontent-encoding: %s\r\nvary: accept-encoding\r\n" % coding
        assert Inflation(small, coding, size).go_on(0) is False
        unpacking = Inflation(small, coding, size)
        assert unpacking.go_on(size + 1)
        assert unpacking.body == body
    for size in (LEAST_PACKED - 1, MOST_PACKED + 1):
        assert packed(bytes(size), b"", coding) == (bytes(size), b"")
    noise = os.urandom(LEAST_PACKED)
    assert packed(noise, b"", coding) == (noise, b"")
