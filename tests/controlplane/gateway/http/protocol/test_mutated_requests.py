"""Requests of all kinds with bytes changed, over clients that stay, leave or close one side.

``MODELLESS_TEST_EXAMPLES=100`` sends 40,000 of them.
"""

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.conftest import EXAMPLES
from tests.controlplane.serving import FAST, LATE, Served, chunked, infer, post, query, request
from tests.controlplane.serving import until as eventually

REQUESTS = 400
AT_ONCE = 8
BYTES = b'\x00\n\r "09:{}\xff'
PIECES = (
    b"\r\n", b"\r\n\r\n", b"9" * 11, b"-1", b"NaN", b"1e999", b"\xff\xfe", b"[[",
    b"Transfer-Encoding: chunked\r\n",
)  # fmt: skip
CHUNKED = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
HEADERS = (
    ("Expect", "100-continue"), ("Connection", "close"), ("Connection", "upgrade"),
    ("Accept-Encoding", "gzip"), ("Content-Encoding", "deflate"),
)  # fmt: skip


def whole(random: Random) -> bytes:
    """A request before anything of it is changed."""
    asked = query(random.randrange(4), variant=random.choice([FAST, LATE, None]))
    headers = [one for one in HEADERS if random.random() < 0.1]
    body = json.dumps(asked).encode()
    packed = [*headers, ("Content-Encoding", "gzip")]
    kinds: list[Callable[[], bytes]] = [
        lambda: post(asked, headers=headers),
        lambda: post(infer(), path="/v2/models/letters/infer", headers=headers),
        lambda: post(infer(), path=f"/v2/models/letters/versions/{FAST}/infer", headers=headers),
        lambda: CHUNKED + b"\r\n" + chunked(body, random.choice([1, 7, 1_000])),
        lambda: CHUNKED + b"Expect: 100-continue\r\n\r\n" + chunked(body, 7),
        lambda: post({"model": "letters", "input": ["a"]}, path="/v1/embeddings"),
        lambda: request("GET", random.choice(["/v2/health/live", "/v1/tasks"]), None),
        lambda: post(gzip.compress(body), headers=packed),
        lambda: post(asked, headers=headers).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ]
    return random.choice(kinds)()


def mutated(random: Random) -> bytes:
    data = bytearray(whole(random))
    for _ in range(random.choice([0, 0, 1, 1, 2, 5])):
        at, kind = random.randrange(len(data)), random.random()
        if kind < 0.6:
            data[at] = random.choice(BYTES)
        elif kind < 0.75:
            del data[at : at + random.randrange(1, 6)]
        else:
            data[at:at] = random.choice(PIECES)
    return bytes(data)


async def client(served: Served, random: Random, count: int) -> None:
    for _ in range(count):
        data = b"".join(mutated(random) for _ in range(random.choice([1, 1, 2, 4])))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        try:
            cut = random.randrange(len(data)) if random.random() < 0.2 else len(data)
            writer.write(data[:cut])
            await asyncio.sleep(0)
            writer.write(data[cut:])
            if random.random() < 0.4:
                writer.write_eof()
                async with asyncio.timeout(60.0):  # what comes is the gateway's end of it
                    await reader.read()
            else:
                await asyncio.wait([asyncio.ensure_future(reader.read(100))], timeout=0.02)
        except OSError:
            pass
        finally:
            writer.close()


@pytest.mark.slow
async def test_whatever_comes_is_answered_or_refused_and_nothing_is_left(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: wrong.append(found))
    count = int(REQUESTS * EXAMPLES / AT_ONCE / 2)
    with caplog.at_level(logging.ERROR):
        await asyncio.gather(*(client(served, Random(n), count) for n in range(AT_ONCE)))
    path = served.gateway.path
    await eventually(lambda: not served.in_flight and not path.departures.others)
    assert (await served.ask(query(1))).status == 200
    assert (len(path.guard), path.held_bytes) == (0, 0)
    assert wrong == []
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
