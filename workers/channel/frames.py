"""The bytes of the tensor channel: layout, encoding, decoding. No input or output happens here.

A frame is a header, then its body; everything is little-endian and every frame's length is a
multiple of 8, so that tensors lie aligned and are used where they arrived. Byte offsets:

==========  ======================================================================================
0   u32     length of the whole frame
4   u8      ``FrameKind``
5   u8      code: a ``ReplyCode``; 1 for an answer that is an error, and for a query whose budget is
            a moment of the clock that both sides read (``shared_clock``); 0 otherwise
6   u16     length of the signature (infer, reply); 1 in a refusal for a fault of the variant whose
            message is for who asked; a version in a handshake frame (``workers.channel.handshake``)
8   u32     request id
==========  ======================================================================================

* Infer continues with rows u32, variant u64, budget in µs u32, priority u16, client u16. In
  version 1 the last two are one priority u32, 0 for none.
  The clients of a connection are numbered from 1 on, in the order of their ``CLIENT`` frames, and
  from 1 on again after ``MOST_CLIENTS``.
* Infer lent is the same for tensors that lie in memory that both sides share
  (``shared_memory``): after the signature it says where they begin, u64, and ends.
* Reply continues with batch size, time in queue, time in the runtime, backlog (µs) and length of
  the message, u32 each.
* Withdraw says by its request id which query nobody waits for any more.
* All others continue with the length of their payload, u32: JSON, or raw bytes in a handshake.

Tensors come as one signature, then the data of each, padded to 8. A signature has for each tensor
its type u8, rank u8, two zero bytes and a u32 for each axis; zeros pad it to 8. Equal signatures
are decoded once: ``Layout`` is interned.
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from math import prod
from struct import Struct, error, pack, unpack_from
from typing import Any

import numpy as np

from planner.types import DEFAULT_PRIORITY
from variants.errors import ModellessError
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode

VERSION = 2
"""The newest version that is spoken here."""
OLDEST = 1
"""The oldest one: that of the release before."""
HEADER = 32
SMALL = 16
"""Header of frames that carry no tensors."""
PLACE = 8
"""Bytes that say where tensors lie."""
MAX_RANK = 8
HANDSHAKE_LIMIT = 512
"""Bytes that a frame may have before its sender is known."""
MOST_CLIENTS = 4_096
"""That one connection names."""
INTERNED = 4_096
JOIN_LIMIT = 32_768
"""Tensors above this many bytes are handed to the socket as they are."""

_PREFIX = Struct("<IBBHI")
_INFER = Struct("<IBBHIIQIHH")
_REPLY = Struct("<IBBHIIIIII")
_SMALL = Struct("<IBBHII")
_LENGTH = Struct("<I")
_PLACE = Struct("<Q")
_PADDING = tuple(bytes(n) for n in range(8))

_CODES = {"<f4": 1, "<f8": 2, "<i8": 3, "<i4": 4, "|u1": 5, "|b1": 6}
_TYPES = {code: np.dtype(text) for text, code in _CODES.items()}
BOOL = np.dtype("?")

Chunk = bytes | memoryview


class FrameKind(IntEnum):
    """What a frame is."""

    HELLO = 1
    AUTH = 2
    AUTH_OK = 3
    INFER = 4
    REPLY = 5
    STATUS = 6
    LOAD = 7
    UNLOAD = 8
    DRAIN = 9
    ANSWER = 10
    HISTORY = 11
    READMIT = 12
    JOINED = 13
    CLIENT = 14
    CHECK = 15
    LEND = 16
    INFER_LENT = 17
    FOLLOW = 18
    QUEUE = 19
    WITHDRAW = 20


class Violation(StrEnum):
    """Why a connection was closed from this side."""

    TOO_LARGE = "frame too large"
    MALFORMED = "malformed frame"
    WRONG_KIND = "unexpected kind of frame"
    WRONG_VERSION = "another version of the channel"
    UNAUTHENTICATED = "the secret does not match"
    HANDSHAKE_TIMEOUT = "no handshake in time"
    SLOW_PEER = "the peer does not read"
    TOO_MANY = "too many connections"
    SILENT = "nothing was heard for too long"


class FrameRefused(ModellessError):
    """The peer broke the rules of the channel."""

    def __init__(self, violation: Violation, detail: str = "") -> None:
        super().__init__(f"{violation}: {detail}" if detail else str(violation))
        self.violation = violation


class Layout:
    """Types, shapes and places of the tensors in a frame's data. Interned: compare by identity."""

    __slots__ = ("has_bool", "nbytes", "rows", "shapes", "signature", "spans", "types")

    def __init__(
        self, signature: bytes, types: list[np.dtype[Any]], shapes: list[tuple[int, ...]]
    ) -> None:
        self.signature = signature
        self.types = types
        self.shapes = shapes
        self.spans: list[tuple[int, int]] = []
        """Begin and end of each tensor."""
        at = 0
        for dtype, shape in zip(types, shapes, strict=True):
            size = prod(shape) * dtype.itemsize
            self.spans.append((at, at + size))
            at += size + -size % 8
        self.nbytes = at
        """All data, padding included."""
        firsts = {shape[0] if shape else 0 for shape in shapes}
        self.rows = firsts.pop() if len(firsts) == 1 else 0
        """Rows of every tensor; 0 if they differ or there are none."""
        self.has_bool = BOOL in types

    def tensors(self, data: Chunk, base: int) -> list[Tensor]:
        """Views of the data that begins at ``base``."""
        if len(self.spans) == 1:
            return [np.ndarray(self.shapes[0], self.types[0], data, base)]
        return [
            np.ndarray(shape, dtype, data, base + span[0])
            for shape, dtype, span in zip(self.shapes, self.types, self.spans, strict=True)
        ]


# A member of an enumeration takes ten times as long to look up as a name of this module.
_KIND_INFER, _KIND_INFER_LENT = int(FrameKind.INFER), int(FrameKind.INFER_LENT)
_KIND_REPLY = int(FrameKind.REPLY)

_layouts: dict[bytes, Layout] = {}
_signatures: dict[tuple[np.dtype[Any], tuple[int, ...]], bytes] = {}


def layout_of(signature: bytes) -> Layout:
    """The layout that a signature describes.

    Raises:
        FrameRefused: it describes none.
    """
    layout = _layouts.get(signature)
    if layout is None:
        layout = _decode_signature(signature)
        if len(_layouts) >= INTERNED:
            _layouts.clear()
        _layouts[signature] = layout
    return layout


def _decode_signature(signature: bytes) -> Layout:
    types: list[np.dtype[Any]] = []
    shapes: list[tuple[int, ...]] = []
    at = 0
    try:
        while at < len(signature) and signature[at]:
            code, rank = signature[at], signature[at + 1]
            if rank > MAX_RANK or code not in _TYPES:
                raise FrameRefused(Violation.MALFORMED, f"tensor type {code}, rank {rank}")
            types.append(_TYPES[code])
            shapes.append(unpack_from(f"<{rank}I", signature, at + 4))
            at += 4 + 4 * rank
    except (error, IndexError) as cause:
        raise FrameRefused(Violation.MALFORMED, "signature ends early") from cause
    return Layout(signature, types, shapes)


def signature_of(tensors: Sequence[Tensor]) -> bytes:
    """The signature of tensors of any shapes.

    Raises:
        TypeError: a tensor has a type that the channel does not carry.
    """
    if len(tensors) == 1:
        tensor = tensors[0]
        key = (tensor.dtype, tensor.shape)  # its name would be written anew each time
        signature = _signatures.get(key)
        if signature is None:
            signature = _padded(_describe(tensor))
            if len(_signatures) >= INTERNED:
                _signatures.clear()
            _signatures[key] = signature
        return signature
    return _padded(b"".join(map(_describe, tensors)))


def _describe(tensor: Tensor) -> bytes:
    code = _CODES.get(tensor.dtype.str)
    if code is None or tensor.ndim > MAX_RANK:
        raise TypeError(f"the channel carries no {tensor.dtype} of rank {tensor.ndim}")
    return pack(f"<BBH{tensor.ndim}I", code, tensor.ndim, 0, *tensor.shape)


def _padded(data: bytes) -> bytes:
    return data + _PADDING[-len(data) % 8]


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of tensors, without padding."""
    return tensors[0].nbytes if len(tensors) == 1 else sum([one.nbytes for one in tensors])


def data_chunks(tensors: Sequence[Tensor]) -> tuple[list[Chunk], int]:
    """The data of tensors of any shapes, padded, and its length. Large ones are not copied."""
    chunks: list[Chunk] = []
    total = 0
    for tensor in tensors:
        size = tensor.nbytes
        if size > JOIN_LIMIT:
            chunks.append(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
        else:
            chunks.append(tensor.tobytes())
        if size % 8:
            chunks.append(_PADDING[-size % 8])
            size += -size % 8
        total += size
    return chunks, total


def infer_frame(
    request_id: int, variant: int, rows: int, budget_us: int, tensors: Sequence[Tensor],
    priority: int = DEFAULT_PRIORITY, until: bool = False, client: int = 0,
) -> list[Chunk]:  # fmt: skip
    """An infer frame in pieces.

    Args:
        variant: the number of the task's variant (``workers.types.variant_id``).
        budget_us: what is left until the reply has to leave the worker, in µs.
        tensors: the inputs, each of shape (rows, ...).
        priority: 1 is the highest, up to 65,535.
        until: ``budget_us`` is the moment when nothing is left, by ``shared_clock``.
        client: its number on the connection; 0: anybody.

    Raises:
        TypeError: a tensor has a type that the channel does not carry.
    """
    signature = signature_of(tensors)
    if len(tensors) == 1 and not (size := tensors[0].nbytes) % 8 and size <= JOIN_LIMIT:
        described = len(signature)
        head = _INFER.pack(
            HEADER + described + size, _KIND_INFER, until, described,
            request_id, rows, variant, budget_us, priority, client,
        )  # fmt: skip
        return [head + signature + tensors[0].tobytes()]
    chunks, size = data_chunks(tensors)
    described = len(signature)
    head = _INFER.pack(
        HEADER + described + size, _KIND_INFER, until, described,
        request_id, rows, variant, budget_us, priority, client,
    )  # fmt: skip
    return [head, signature, *chunks]


def infer_lent_frame(
    request_id: int, variant: int, rows: int, budget_us: int, signature: bytes, begin: int,
    priority: int = DEFAULT_PRIORITY, until: bool = False, client: int = 0,
) -> bytes:  # fmt: skip
    """An infer frame for tensors in shared memory, which begin at byte ``begin`` there."""
    described = len(signature)
    head = _INFER.pack(
        HEADER + described + PLACE, _KIND_INFER_LENT, until, described,
        request_id, rows, variant, budget_us, priority, client,
    )  # fmt: skip
    return head + signature + _PLACE.pack(begin)


def reply_head(
    size: int, signature: bytes, request_id: int,
    batch_size: int, queue_us: int, run_us: int, backlog_us: int,
) -> bytes:  # fmt: skip
    """All of an OK reply but its ``size`` bytes of padded data. Times and backlog are in µs."""
    described = len(signature)
    return (
        _REPLY.pack(
            HEADER + described + size, _KIND_REPLY, 0, described,
            request_id, batch_size, queue_us, run_us, backlog_us, 0,
        )
        + signature
    )  # fmt: skip


def refusal_frame(
    code: ReplyCode, request_id: int, backlog_us: int, message: str, for_client: bool = False
) -> bytes:
    """A reply without tensors.

    Args:
        backlog_us: the predicted time of all admitted work, in µs.
        message: any text; back ends also say what is none.
        for_client: it is for who asked, although the variant failed.
    """
    text = message.encode(errors="backslashreplace")[:4096]
    body = _padded(text)
    head = _REPLY.pack(
        HEADER + len(body), _KIND_REPLY, code, for_client,
        request_id, 0, 0, 0, backlog_us, len(text),
    )  # fmt: skip
    return head + body


def small_frame(
    kind: FrameKind, payload: bytes, *, request_id: int = 0, code: int = 0, version: int = 0
) -> bytes:
    """A handshake or control frame; ``version`` is for those of the handshake."""
    body = _padded(payload)
    return _SMALL.pack(SMALL + len(body), kind, code, version, request_id, len(payload)) + body


def small_payload(frame: bytes) -> bytes:
    """The payload of a handshake or control frame.

    Raises:
        FrameRefused: it is longer than the frame.
    """
    size = _LENGTH.unpack_from(frame, 12)[0]
    if SMALL + size > len(frame):
        raise FrameRefused(Violation.MALFORMED, "payload ends early")
    return frame[SMALL : SMALL + size]


def as_in_version_1(low: int, high: int) -> int:
    """The priority of a query in version 1, from where version 2 has priority and client."""
    return min(low | high << 16, 0xFFFF) or DEFAULT_PRIORITY


unpack_prefix = _PREFIX.unpack_from
unpack_infer = _INFER.unpack_from
unpack_reply = _REPLY.unpack_from
unpack_place = _PLACE.unpack_from


class Splitter:
    """Cuts a stream into frames, keeping what is not complete yet. Linear in the bytes received.

    ``feed`` returns data and the places where frames begin in it; all of them are whole. A frame
    that comes in many pieces is joined once.
    """

    __slots__ = ("_held", "_missing", "_pieces", "limit", "stepwise")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Longest frame accepted, in bytes."""
        self.stepwise = True
        """Return one frame at a time, because it decides how the next one is taken (handshake).
        Call ``feed(b"")`` for the next."""
        self._pieces: list[bytes] = []
        self._held = 0
        self._missing = 0

    def feed(self, data: bytes) -> tuple[bytes, list[int]]:
        """Take what arrived.

        Raises:
            FrameRefused: a length is impossible or over the limit.
        """
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._missing:
                return b"", []
            data = b"".join(self._pieces)
            self._pieces.clear()
        begins: list[int] = []
        at, end = 0, len(data)
        while end - at >= 4:
            length = _LENGTH.unpack_from(data, at)[0]
            if length > self.limit:
                raise FrameRefused(Violation.TOO_LARGE, f"{length} > {self.limit} bytes")
            if length < SMALL or length % 8:
                raise FrameRefused(Violation.MALFORMED, f"length {length}")
            if at + length > end:
                break
            begins.append(at)
            at += length
            if self.stepwise:
                break
        if at < end:
            rest = data[at:] if at else data
            self._pieces.append(rest)
            self._held = len(rest)
            self._missing = _LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else 4
        return data, begins
