"""Compression: bodies that come compressed, and answers that go so, as HTTP names it.

What a body unpacks to is as bounded as a body is, and is refused in the middle of unpacking beyond
that. So is the time that it takes: blocks that hold nothing take zlib as long as others. A short
body is unpacked where it is; any other in a thread, one at a time: zlib lets go of the interpreter.
The codings are those of RFC 9110, section 8.4.1.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from controlplane.http_errors import UnsupportedCoding
from variants.errors import Internal, InvalidInput, ModellessError, Overloaded, PayloadTooLarge
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

Body = bytes | bytearray
Done = Callable[[Body | ModellessError], None]

WINDOWS: Mapping[bytes, int] = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""What zlib is told of each coding: the size of the window, and the format around it."""
IDENTITY = b"identity"
ON_LOOP = 2**14
"""Compressed bytes of a body that is begun on the event loop; a longer one goes to the thread. Of
numbers that takes 0.1 ms, of blocks that hold nothing 1.3 ms."""
AT_ONCE = 2**16
"""Bytes that are unpacked there, in about 0.2 ms; what is longer is finished in the thread."""
PIECE = 2**18
FED = 2**14
"""Compressed bytes that zlib is given at a time: it copies what it has not used. Between two pieces
it is looked whether it takes too long."""
MOST = 64
"""Bodies that are unpacked or wait for it, ..."""
MOST_BYTES = 2**28
"""... and their bytes, compressed."""
WORK_S, WORK_S_PER_MIB = 0.05, 0.05
"""Processor time that a body may take, and more for each MiB that has come of it: some fifteen
times what numbers take."""
WAIT_S, WAIT_S_PER_MIB = 0.25, 0.05
"""How long a body may wait and be unpacked, and more for each MiB that it has compressed."""
LEAST_PACKED, MOST_PACKED = 2**14, 2**18
"""Answers of these lengths, in bytes, are compressed: a shorter one fits a few packets, and a
longer one would take the event loop more than 4 ms."""
LONGEST_HEADER = 256
WORTH = 0.8
"""Part of an answer's length to which it has to shrink."""
LEVEL = 1
"""Numbers shrink by half at the first level, and hardly more at any other."""


class Inflation:
    """One body that is unpacked."""

    def __init__(
        self,
        packed: Body,
        coding: bytes,
        most: int,
        clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """
        Args:
            coding: one of ``WINDOWS``.
            most: the longest body, in bytes.
            clock_s: the time that the thread has worked.
        """
        self._coding = coding
        self._clock_s = clock_s
        self._stream = zlib.decompressobj(WINDOWS[coding])
        self._packed = memoryview(packed)
        self._at = 0
        self._most = most
        self.body = bytearray()
        """What has come of it."""
        self.dropped = False
        """Nobody waits for it any more."""

    def go_on(self, until: float) -> bool:
        """Unpack, at least so many bytes; return whether that was all.

        Raises:
            InvalidInput: it is not compressed like this, or ends too early or too late, or it
                takes too long for what comes of it.
            PayloadTooLarge: it unpacks to more than a body may have.
        """
        stream, body = self._stream, self.body
        left: bytes | memoryview = stream.unconsumed_tail
        began_s = self._clock_s()
        while not stream.eof and len(body) < until and not self.dropped:
            if self._clock_s() - began_s > WORK_S + WORK_S_PER_MIB * len(body) / 2**20:
                raise InvalidInput("the body takes too long to be unpacked for what it holds")
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
                raise PayloadTooLarge(f"the body unpacks to more than {self._most / 2**20:,g} MiB")
        if stream.eof and (stream.unused_data or self._at < len(self._packed)):
            raise self._wrong("something follows behind its end")
        return stream.eof

    def _wrong(self, reason: str) -> InvalidInput:
        return InvalidInput(f"the body is no {self._coding.decode()}: {reason}")


class Inflater:
    """Unpacks the bodies of one gateway. Lives on one event loop."""

    def __init__(self, most: int, wait_s: float = WAIT_S) -> None:
        """
        Args:
            most: the longest body, in bytes, as it is sent and as it is unpacked.
            wait_s: how long a short one may wait.
        """
        self._most = most
        self._wait_s = wait_s
        self._thread = ThreadPoolExecutor(1, "unpacking")
        self._under_way = self._bytes = 0

    def inflate(self, packed: Body, coding: bytes, done: Done, most: int | None = None) -> None:
        """Unpack a body; ``done`` is called exactly once, with it or with what is wrong.

        Args:
            coding: the header ``Content-Encoding``.
            most: the longest body, in bytes, where that is less than for others.
        """
        coding = coding.strip().lower()
        if coding == IDENTITY:
            done(packed)
            return
        try:
            if (error := unsupported(coding)) is not None:
                raise error
            inflation = Inflation(packed, coding, self._most if most is None else most)
            if len(packed) <= ON_LOOP and inflation.go_on(AT_ONCE):
                done(inflation.body)
                return
        except ModellessError as error:
            done(error)
            return
        if self._under_way >= MOST or self._bytes + len(packed) > MOST_BYTES:
            done(Overloaded("too many compressed bodies are being unpacked"))
            return
        self._finish_elsewhere(inflation, len(packed), done)

    def _finish_elsewhere(self, inflation: Inflation, nbytes: int, done: Done) -> None:
        """Unpack the rest in the thread; who has waited too long for it is told so."""
        self._under_way += 1
        self._bytes += nbytes
        loop = asyncio.get_running_loop()
        unpacked = loop.run_in_executor(self._thread, _all_of, inflation)

        def too_late() -> None:
            if unpacked.done():
                return  # it is told so next
            inflation.dropped = True
            done(Overloaded("the compressed body could not be unpacked soon enough"))

        limit_s = self._wait_s + WAIT_S_PER_MIB * nbytes / 2**20
        timer = loop.call_later(limit_s, too_late)

        def ended(future: "asyncio.Future[Body | ModellessError]") -> None:
            self._under_way -= 1
            self._bytes -= nbytes
            if inflation.dropped:
                return
            timer.cancel()
            closing = future.cancelled()
            done(Overloaded("the gateway is closing") if closing else future.result())

        unpacked.add_done_callback(ended)

    async def inflated(self, packed: Body, coding: bytes, most: int | None = None) -> Body:
        """The same for who can wait.

        Raises:
            ModellessError: what is wrong.
        """
        unpacked: asyncio.Future[Body | ModellessError]
        unpacked = asyncio.get_running_loop().create_future()

        def done(found: Body | ModellessError) -> None:
            if not unpacked.done():
                unpacked.set_result(found)

        self.inflate(packed, coding, done, most)
        found = await unpacked
        if isinstance(found, ModellessError):
            raise found
        return found

    def close(self) -> None:
        """Take no more; what waits is told so, if its connection is still there."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _all_of(inflation: Inflation) -> Body | ModellessError:
    try:
        inflation.go_on(float("inf"))
    except ModellessError as error:
        return error
    except Exception as error:
        sparing.error("", error, "unpacking a body failed")
        return Internal("unpacking the body failed")
    return inflation.body


def coding_of(message: bytes) -> bytes:
    """How a protobuf message is compressed, by its first bytes; empty: it is not.

    None of ours begins like this: that would be field 3 of a kind that there is not, or field 15.
    """
    if message[:2] == b"\x1f\x8b":
        return b"gzip"
    return b"deflate" if message[:1] == b"\x78" else b""


def unsupported(coding: bytes) -> UnsupportedCoding | None:
    """What is wrong with a header ``Content-Encoding``, if anything."""
    name = coding.strip().lower()
    if name in WINDOWS or name == IDENTITY:
        return None
    shown = coding[:80].decode("latin-1")
    return UnsupportedCoding(f"Content-Encoding {shown!r} is not supported; gzip and deflate are")


def accepted(header: bytes) -> bytes:
    """The coding that a client takes, by its ``Accept-Encoding``; empty where it takes none.

    A header that no client sends unless to take memory counts for none.
    """
    return _accepted(header) if len(header) <= LONGEST_HEADER else b""


@lru_cache(1_024)
def _accepted(header: bytes) -> bytes:
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
    """An answer and its header lines, compressed where that is worth it: by its length, before and
    after."""
    if not LEAST_PACKED <= len(body) <= MOST_PACKED:
        return body, headers
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOWS[coding])
    lines = b"%scontent-encoding: %s\r\nvary: accept-encoding\r\n" % (headers, coding)
    small = stream.compress(body) + stream.flush()
    return (small, lines) if len(small) <= WORTH * len(body) else (body, headers)
