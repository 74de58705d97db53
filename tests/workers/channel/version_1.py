"""Version 1 of the tensor channel, as its last commit spoke it: both sides, fixed for good.

It uses nothing of ``workers.channel``, so that what is spoken there may change and this does not.
"""

import asyncio
import hmac
import struct
from dataclasses import dataclass, field
from typing import Any

import orjson

HELLO, AUTH, AUTH_OK, INFER, REPLY, STATUS = 1, 2, 3, 4, 5, 6
NONCE = bytes(range(32))
FLOATS_OF_ONE_ROW = struct.pack("<BBHII", 1, 2, 0, 1, 4) + bytes(4)
"""The signature of a (1, 4) tensor of float32."""


def small(kind: int, payload: bytes, version: int = 1) -> bytes:
    body = payload + bytes(-len(payload) % 8)
    told = version if kind <= AUTH_OK else 0
    return struct.pack("<IBBHII", 16 + len(body), kind, 0, told, 0, len(payload)) + body


def prove(secret: bytes, direction: bytes, first: bytes, second: bytes, worker: bytes) -> bytes:
    text = b"\0".join((b"modelless", direction, b"\x01", first, second, worker))
    return hmac.digest(secret, text, "sha256")


def infer(request: int, variant: int, budget_us: int, priority: int, row: list[float]) -> bytes:
    data = struct.pack("<4f", *row)
    size = 32 + len(FLOATS_OF_ONE_ROW) + len(data)
    head = struct.pack(
        "<IBBHIIQII", size, INFER, 0, len(FLOATS_OF_ONE_ROW), request, 1, variant, budget_us,
        priority,
    )  # fmt: skip
    return head + FLOATS_OF_ONE_ROW + data


async def frame(reader: asyncio.StreamReader) -> bytes:
    begin = await reader.readexactly(4)
    return begin + await reader.readexactly(struct.unpack("<I", begin)[0] - 4)


def payload(one: bytes) -> bytes:
    size: int = struct.unpack_from("<I", one, 12)[0]
    return one[16 : 16 + size]


async def gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Any:
    """Shake hands as a gateway of version 1; the worker's first status."""
    hello = await frame(reader)
    assert (hello[4], struct.unpack_from("<H", hello, 6)[0]) == (HELLO, 1)
    theirs, worker = payload(hello)[:32], payload(hello)[32:]
    writer.write(small(AUTH, NONCE + prove(secret, b"client", theirs, NONCE, worker)))
    proof = await frame(reader)
    assert (proof[4], struct.unpack_from("<H", proof, 6)[0]) == (AUTH_OK, 1)
    assert payload(proof) == prove(secret, b"worker", NONCE, theirs, worker)
    status = await frame(reader)
    assert status[4] == STATUS
    return orjson.loads(payload(status))


async def answer(reader: asyncio.StreamReader) -> tuple[int, int, list[float]]:
    """Request id, code and floats of the next reply."""
    while (reply := await frame(reader))[4] != REPLY:
        pass
    described, request = struct.unpack_from("<HI", reply, 6)
    data = reply[32 + described :]
    return request, reply[5], list(struct.unpack(f"<{len(data) // 4}f", data))


@dataclass
class Worker:
    """A worker of version 1 that answers each query with its own row."""

    secret: bytes
    status: dict[str, Any]
    version: int = 1
    queries: list[tuple[int, int]] = field(default_factory=list)
    """Variant and priority of each."""
    kinds: list[int] = field(default_factory=list)
    """Of all frames that came after the handshake."""
    connections: int = 0
    others: list[int] = field(default_factory=list)
    """Versions that gateways named which speak another one."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            writer.write(small(HELLO, NONCE + b"w1", self.version))
            auth = await frame(reader)
            assert auth[4] == AUTH
            if (version := struct.unpack_from("<H", auth, 6)[0]) != 1:
                self.others.append(version)
                return
            theirs = payload(auth)[:32]
            assert payload(auth)[32:] == prove(self.secret, b"client", NONCE, theirs, b"w1")
            writer.write(small(AUTH_OK, prove(self.secret, b"worker", theirs, NONCE, b"w1")))
            writer.write(small(STATUS, orjson.dumps(self.status)))
            while True:
                self._take(await frame(reader), writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def _take(self, one: bytes, writer: asyncio.StreamWriter) -> None:
        self.kinds.append(one[4])
        if one[4] == INFER:
            described, request, _, variant, _, priority = struct.unpack_from("<HIIQII", one, 6)
            self.queries.append((variant, priority))
            head = struct.pack("<IBBHIIIIII", len(one), REPLY, 0, described, request, 1, 0, 0, 0, 0)
            writer.write(head + one[32:])
