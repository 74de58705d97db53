"""The bytes of inference messages: large tensors go around protobuf, which would copy them.

A message is a row of fields, each behind its number. The raw contents of a request are found by
walking over its outermost fields, and stay where they arrived; those of a reply are written behind
the other fields, which is as good a message as any.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from controlplane.gateway.grpc.messages import ModelInferRequest
from variants.errors import InvalidInput
from variants.varint import read_varint, varint

APART = 32_768
"""Bytes of a request from which its raw contents are taken out by hand: below, protobuf is done
sooner than the walk over the fields (decision 22)."""

_RAW_INPUTS = 7
_RAW_OUTPUTS_TAG = 6 << 3 | 2
_PARAMETERS, _KEY, _VALUE, _STRING = 4, 1, 2, 3
"""Parameters of a ``ModelInferResponse``; what an entry of a map has; an ``InferParameter``."""
_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}


def read_request(data: bytes) -> tuple[Any, list[bytes | memoryview]]:
    """A ``ModelInferRequest`` and its raw contents, which are not in the message where it is large.

    Raises:
        InvalidInput: it is no such message.
    """
    try:
        if len(data) < APART:
            message = ModelInferRequest.FromString(data)
            return message, list(message.raw_input_contents)
        rest, raw = _apart(data)
        return ModelInferRequest.FromString(rest), raw
    except (DecodeError, ValueError, IndexError) as error:
        raise InvalidInput("the message is no ModelInferRequest") from error


def with_raw(message: Any, raw: Iterable[bytes | memoryview]) -> bytes:
    """A ``ModelInferResponse`` with raw contents, as it goes on the wire."""
    pieces: list[bytes | memoryview] = [message.SerializeToString()]
    for data in raw:
        pieces += [_head(_RAW_OUTPUTS_TAG, len(data)), data]
    return b"".join(pieces)


def nested(number: int, *message: bytes) -> bytes:
    """A message that consists of another one in the field of this number, which comes in pieces."""
    length = sum(map(len, message))
    return b"".join([_head(number << 3 | _LENGTH_DELIMITED, length), *message])


def as_parameters(headers: bytes) -> bytes:
    """Header lines of an answer as parameters, to stand behind a ``ModelInferResponse``: a stream
    has no metadata for each of its answers."""
    lines = [line.partition(b": ") for line in headers.split(b"\r\n")[:-1]]
    return b"".join([_parameter(name, value) for name, _, value in lines])


def _parameter(name: bytes, value: bytes) -> bytes:
    named, said = len(name), len(value)
    if named + said + 6 < 128:  # each length is one byte: the same as below, sooner
        return b"\x22%c\x0a%c%b\x12%c\x1a%c%b" % (
            named + said + 6, named, name, said + 2, said, value,
        )  # fmt: skip
    return nested(_PARAMETERS, nested(_KEY, name), nested(_VALUE, nested(_STRING, value)))


def _apart(data: bytes) -> tuple[bytes, list[bytes | memoryview]]:
    """All fields of a request but its raw contents, and views of these.

    Raises:
        DecodeError: a field is of a kind that there is not, or longer than the message.
        ValueError, IndexError: a number is too long, or the message ends within it.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    raw: list[bytes | memoryview] = []
    at, end = 0, len(data)
    while at < end:
        begin = at
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, at = read_varint(data, at)
            if tag >> 3 == _RAW_INPUTS:
                if length > end - at:
                    raise DecodeError("a tensor is cut off")
                raw.append(view[at : at + length])
                at += length
                continue
            at += length
        elif kind == 0:
            _, at = read_varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise DecodeError("a group")
        if at > end:
            raise DecodeError("a field is cut off")
        rest.append(view[begin:at])
    return b"".join(rest), raw


def _head(tag: int, length: int) -> bytes:
    """What stands before the bytes of a field; field numbers here are below 16."""
    return bytes((tag,)) + varint(length)
