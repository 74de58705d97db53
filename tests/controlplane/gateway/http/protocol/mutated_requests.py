"""Requests of all kinds with bytes changed, over clients that stay, leave or close one side.

Each client keeps a ledger of what came of its connections, as far as it has waited for that.
"""

import asyncio
import gzip
import json
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from struct import pack
from time import monotonic
from typing import NamedTuple

from controlplane.http_errors import STATUS
from tests.controlplane.serving import FAST, LATE, chunked, infer, post, query, request

BOUND_S = 30.0
"""Within so long a connection is answered and closed whose client sends nothing more. It is the
gateway's own limits and the longest answer, on a machine that is full."""
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
READS = ("/v2/health/live", "/v1/tasks", "/v2/models/letters", "/v1/slo", "/metrics")
SLOS = ({"latency_ms": 5}, {"latency_ms": 1, "accuracy": 2}, {"accuracy": 0.5}, {"latency_ms": -1})
STAYS, WAITS, LEAVES, BREAKS = 0.58, 0.6, 0.8, 0.9
"""Of clients, up to which part they send nothing more and read all that comes, send nothing more
and wait until the gateway ends the connection, go in the middle, and reset the connection; the
rest waits for a moment only."""


class Told(NamedTuple):
    """One answer."""

    status: int
    code: str
    """Of an error; empty for others."""
    of_query: bool
    """It answers a query that ran."""


class Ledger:
    """What came of requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.connections = 0
        self.told: Counter[tuple[int, str]] = Counter()
        """Answers, by status and code."""
        self.answered = 0
        """Queries that were answered, as their clients saw it."""
        self.unread = 0
        """Requests whose clients did not read all that was to come."""
        self.resets = 0
        """Connections that clients sent more over than the gateway read."""
        self.wrong: list[str] = []
        """What no answer may be, and what never ended."""
        self.longest_s = 0.0
        """From the last byte that was sent to the end of a connection."""

    def lines(self) -> str:
        """What is in it, to be read."""
        told = sorted(self.told.items())
        kinds = ", ".join(f"{status} {code} {n}".replace("  ", " ") for (status, code), n in told)
        return (
            f"{self.requests:,} requests over {self.connections:,} connections, of which"
            f" {self.unread:,} were left ({self.resets} resets); the longest end took"
            f" {self.longest_s:.2f} s; {kinds}"
        )


def whole(random: Random) -> bytes:
    """A request before anything of it is changed."""
    asked = query(random.randrange(4), variant=random.choice([FAST, FAST, None, LATE]))
    if random.random() < 0.2:
        asked["slo"] = random.choice(SLOS)
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
        lambda: post({"task": "letters"}, path="/v1/explain", headers=headers),
        lambda: request("GET", random.choice(READS), None),
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
        elif kind < 0.9:
            data[at:at] = random.choice(PIECES)
        else:
            data[at:at] = data[at : at + random.randrange(1, 8)]
    return bytes(data)


def answers(came: bytes) -> list[Told]:
    """The answers in what came over a connection until its end.

    Raises:
        ValueError: they are not whole, or not as this gateway answers.
    """
    found: list[Told] = []
    while came:
        head, end, rest = came.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        version, status, *_ = lines[0].split(b" ")
        if not end or version != b"HTTP/1.1":
            raise ValueError(f"no head of an answer: {head[:200]!r}")
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
        if status != b"100":
            body, came = _body(fields, rest)
            found.append(_told(int(status), fields, body))
        else:
            came = rest
    return found


def _body(fields: dict[bytes, bytes], rest: bytes) -> tuple[bytes, bytes]:
    """The body of an answer, and what follows it."""
    if b"content-length" in fields:
        length = int(fields[b"content-length"])
        if len(rest) < length:
            raise ValueError(f"{len(rest)} bytes of a body of {length}")
        return rest[:length], rest[length:]
    if fields.get(b"transfer-encoding") != b"chunked":
        raise ValueError("a body without a length")
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
        if not length:
            return body, rest


def _told(status: int, fields: dict[bytes, bytes], body: bytes) -> Told:
    if status < 400:
        return Told(status, "", b"x-choice-reason" in fields)
    said = json.loads(body)
    code = said["code"]
    if not said["request_id"] or not said["error"]:
        raise ValueError(f"an error that says nothing: {body[:200]!r}")
    if status not in (405, 408, 415) and STATUS[code] != status:
        raise ValueError(f"{code} with status {status}")
    if status == 500:
        raise ValueError(f"an internal error: {body[:200]!r}")
    return Told(status, code, False)


async def client(port: int, random: Random, requests: int, ledger: Ledger, *, polite: bool) -> None:
    """Send requests over one connection after the other.

    Args:
        requests: how many, at least.
        polite: reads whatever comes on each of them.
    """
    sent = 0
    while sent < requests:
        count = random.choice([1, 1, 2, 4])
        data = b"".join(mutated(random) for _ in range(count))
        sent += count
        ledger.requests += count
        ledger.connections += 1
        kind = random.random() * (WAITS if polite else 1.0)
        if kind >= WAITS:
            ledger.unread += count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await _send(writer, data, random)
            if kind < WAITS:
                await _read_all(reader, writer, ledger, data, closes=kind < STAYS)
            elif kind < LEAVES:
                await asyncio.sleep(random.choice([0, 0, 0.002]))
            elif kind < BREAKS:
                reset(writer)
            else:
                await asyncio.wait([asyncio.ensure_future(reader.read(100))], timeout=0.02)
        except OSError:  # it went on sending where the gateway had ended the connection
            if kind < WAITS:
                ledger.resets += 1
                ledger.unread += count
        finally:
            writer.close()


async def _send(writer: asyncio.StreamWriter, data: bytes, random: Random) -> None:
    cut = random.randrange(len(data)) if random.random() < 0.2 else len(data)
    writer.write(data[:cut])
    await asyncio.sleep(random.choice([0, 0.002]))
    writer.write(data[cut:])


async def _read_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ledger: Ledger, sent: bytes,
    *, closes: bool,
) -> None:  # fmt: skip
    """Read until the gateway ends the connection, and note what came."""
    if closes:
        with suppress(OSError):  # the gateway has closed both sides, and may have said why
            writer.write_eof()
    began_s, came = monotonic(), b""
    try:
        async with asyncio.timeout(BOUND_S):
            while more := await reader.read(65_536):
                came += more
    except TimeoutError:
        ledger.wrong.append(f"it has no end: {sent!r}, of which {came!r} came")
        return
    ledger.longest_s = max(ledger.longest_s, monotonic() - began_s)
    try:
        found = answers(came)
    except (ValueError, KeyError) as error:
        ledger.wrong.append(f"{error!r}: {sent!r}, to which {came!r} came")
        return
    for one in found:
        ledger.told[one.status, one.code] += 1
        ledger.answered += one.of_query


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a process does that is killed: what lies unread is thrown away."""
    own: socket.socket = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
    writer.transport.abort()
