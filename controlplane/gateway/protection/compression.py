"""Compression: bodies that come compressed, and answers that go so, as HTTP names it.

What a body unpacks to is as bounded as a body is, and is refused in the middle of unpacking beyond
that. A short one is unpacked where it is; a long one in a thread, one at a time: zlib lets go of
the interpreter. The codings are those of RFC 9110, section 8.4.1.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from variants.errors import InvalidInput, ModellessError, Overloaded, PayloadTooLarge

Body = bytes | bytearray
Done = Callable[[Body | ModellessError], None]

WINDOWS: Mapping[bytes, int] = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""What zlib is told of each coding: the size of the window, and the format around it."""
IDENTITY = b"identity"
AT_ONCE = 2**16
"""Bytes that are unpacked on the event loop, in about 0.2 ms; what is longer goes to the thread."""
PIECE = 2**18
FED = 2**16
"""Compressed bytes that zlib is given at a time: it copies what it has not used."""
MOST = 64
"""Bodies that are unpacked or wait for it."""
LEAST_PACKED, MOST_PACKED = 2**14, 2**18
"""Answers of these lengths, in bytes, are compressed: a shorter one fits a few packets, and a
longer one would take the event loop more than 4 ms."""
LEVEL = 1
"""Numbers shrink by half at the first level, and hardly more at any other."""


class Inflation:
    """One body that is unpacked."""

    def __init__(self, packed: Body, coding: bytes, most: int) -> None:
        """
        Args:
            coding: one of ``WINDOWS``.
            most: the longest body, in bytes.
        """
        self._coding = coding
        self._stream = zlib.decompressobj(WINDOWS[coding])
        self._packed = memoryview(packed)
        self._at = 0
        self._most = most
        self.body = bytearray()
        """What has come of it."""

    def go_on(self, until: float) -> bool:
        """Unpack, at least so many bytes; return whether that was all.

        Raises:
            InvalidInput: it is not compressed like this, or ends too early or too late.
            PayloadTooLarge: it unpacks to more than a body may have.
        """
        stream, body = self._stream, self.body
        left: bytes | memoryview = stream.unconsumed_tail
        while not stream.eof and len(body) < until:
            if not left:
                left = self._packed[self._at : self._at + FED]
                self._at += len(left)
            try:
                piece = stream.decompress(left, min(PIECE, self._most + 1 - len(body)))
            except zlib.error as error:
                raise self._wrong(str(error).partition(": ")[2] or str(error)) from error
            if not (piece or left or stream.eof):
                raise self._wrong("it ends too early")
            left = stream.unconsumed_tail
            body += piece
            if len(body) > self._most:
                raise PayloadTooLarge(f"the body unpacks to more than {self._most / 2**20:g} MiB")
        if stream.eof and (stream.unused_data or self._at < len(self._packed)):
            raise self._wrong("something follows behind its end")
        return stream.eof

    def _wrong(self, reason: str) -> InvalidInput:
        return InvalidInput(f"the body is no {self._coding.decode()}: {reason}")


class Inflater:
    """Unpacks the bodies of one gateway. Lives on one event loop."""

    def __init__(self, most: int) -> None:
        """``most``: the longest body, in bytes, as it is sent and as it is unpacked."""
        self._most = most
        self._thread = ThreadPoolExecutor(1, "unpacking")
        self._under_way = 0

    def inflate(self, packed: Body, coding: bytes, done: Done) -> None:
        """Unpack a body; ``done`` is called exactly once, with it or with what is wrong.

        Args:
            coding: the header ``Content-Encoding``.
        """
        coding = coding.strip().lower()
        if coding == IDENTITY:
            done(packed)
            return
        try:
            if (error := unsupported(coding)) is not None:
                raise error
            inflation = Inflation(packed, coding, self._most)
            if inflation.go_on(AT_ONCE):
                done(inflation.body)
                return
        except ModellessError as error:
            done(error)
            return
        if self._under_way >= MOST:
            done(Overloaded("Too many compressed bodies are being unpacked."))
            return
        self._under_way += 1
        loop = asyncio.get_running_loop()
        unpacked = loop.run_in_executor(self._thread, _all_of, inflation)

        def ended(future: "asyncio.Future[Body | ModellessError]") -> None:
            self._under_way -= 1
            if not future.cancelled():
                done(future.result())

        unpacked.add_done_callback(ended)

    async def inflated(self, packed: Body, coding: bytes) -> Body:
        """The same for who can wait.

        Raises:
            ModellessError: what is wrong.
        """
        unpacked: asyncio.Future[Body | ModellessError]
        unpacked = asyncio.get_running_loop().create_future()

        def done(found: Body | ModellessError) -> None:
            if not unpacked.done():
                unpacked.set_result(found)

        self.inflate(packed, coding, done)
        found = await unpacked
        if isinstance(found, ModellessError):
            raise found
        return found

    def close(self) -> None:
        """Take no more; what waits gets no answer, its connections are closed."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _all_of(inflation: Inflation) -> Body | ModellessError:
    try:
        inflation.go_on(float("inf"))
    except ModellessError as error:
        return error
    return inflation.body


def coding_of(message: bytes) -> bytes:
    """How a protobuf message is compressed, by its first bytes; empty: it is not.

    None of ours begins like this: that would be field 3 of a kind that there is not, or field 15.
    """
    if message[:2] == b"\x1f\x8b":
        return b"gzip"
    return b"deflate" if message[:1] == b"\x78" else b""


def unsupported(coding: bytes) -> InvalidInput | None:
    """What is wrong with a header ``Content-Encoding``, if anything."""
    name = coding.strip().lower()
    if name in WINDOWS or name == IDENTITY:
        return None
    shown = coding[:80].decode("latin-1")
    return InvalidInput(f"Content-Encoding {shown!r} is not supported; gzip and deflate are")


@lru_cache(1_024)
def accepted(header: bytes) -> bytes:
    """The coding that a client takes, by its ``Accept-Encoding``; empty where it takes none."""
    weights: dict[bytes, float] = {}
    for part in header.lower().split(b","):
        name, _, parameter = part.partition(b";")
        text = parameter.partition(b"q=")[2].strip()
        try:
            weights[name.strip()] = float(text) if text else 1.0
        except ValueError:
            continue
    others = weights.get(b"*", 0.0)
    found = {name: weights.get(name, others) for name in (b"gzip", b"deflate")}
    best = max(found, key=found.__getitem__)
    return best if found[best] > 0.0 and found[best] >= weights.get(b"identity", 0.0) else b""


def packed(body: bytes, headers: bytes, coding: bytes) -> tuple[bytes, bytes]:
    """An answer and its header lines, compressed if it is of a length that is worth it."""
    if not LEAST_PACKED <= len(body) <= MOST_PACKED:
        return body, headers
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOWS[coding])
    lines = b"%scontent-encoding: %s\r\nvary: accept-encoding\r\n" % (headers, coding)
    return stream.compress(body) + stream.flush(), lines
