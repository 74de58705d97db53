"""The process that reads long bodies for a gateway, one at a time.

    python -m controlplane.gateway.protection.read_bodies FD

What it is sent and what it answers stands in ``controlplane.gateway.protection.body_frames``. It
ends when its gateway does. Reading a body may take so much memory as is in proportion to it, and no
more.
"""

import resource
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from io import BufferedReader
from math import inf
from pathlib import Path
from typing import Any, cast

import orjson

from controlplane.gateway.protection.body_frames import (
    LOADED,
    PREFIX,
    TOGETHER,
    described,
    error_as_json,
    pieces,
    tasks_of,
)
from controlplane.gateway.query.lean_json import LongBody
from controlplane.gateway.query.parsing import ParsedQuery, json_of, parse_v1
from controlplane.gateway.query.query_fields import name_task
from controlplane.gateway.query.v2.parsing import json_length, parse_v2
from variants.errors import Internal, ModellessError, PayloadTooLarge
from variants.images import expects_images
from variants.types import Task, TaskName

PIXELS = "controlplane.gateway.images.pixels"
TEXTS = "controlplane.gateway.texts.reading"
TIMES = 17
"""Memory that reading may take over the size of a body; the gateway and this process each hold the
body as well."""
SPARE_BYTES = 32 * 2**20
"""Besides: what the allocator keeps."""
TEXT_BYTES = 192 * 2**20
"""Besides, of texts: rows that are filled up, and the tokens of some of them at a time."""


FEWEST_BYTES = 8
"""Of a body for each of its lists and objects, where it is not plain numbers: each takes about 100
in memory."""


class Bounded:
    """Memory of this process while it reads one body."""

    def __init__(self, size: int, spare_bytes: int = SPARE_BYTES) -> None:
        self._most = data_bytes() + spare_bytes + TIMES * size

    def __enter__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = self._most if hard == resource.RLIM_INFINITY else min(self._most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    def __exit__(self, *ended: object) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def data_bytes() -> int:
    """What of this process counts for the limit on data."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()


def read(
    body: bytearray,
    asked: Mapping[str, Any],
    tasks: Mapping[TaskName, Task],
    tokenisers: Any = None,
) -> ParsedQuery:
    """A query from a body, as the gateway would read it.

    Args:
        tokenisers: those of all tasks, where texts are read here, and nothing else is.

    Raises:
        AskedInText: its rows are texts, and those are not read here.
        ModellessError: it is wrong, or takes too much memory.
    """
    if asked.get("image") is not None:
        import_module(PIXELS)  # before memory is bounded
    if tokenisers is not None:
        return _within_bounds(body, asked, tasks, tokenisers)
    try:
        with Bounded(len(body)):
            try:
                return _parsed(body, asked, tasks, 0)
            except LongBody:
                _check_nesting(body)
                return _parsed(body, asked, tasks, inf)
    except (MemoryError, SystemError):  # the second where a library overlooks the first
        raise PayloadTooLarge(
            f"the body takes more than {TIMES} times its size in memory to be read"
        ) from None


def _within_bounds(
    body: bytearray, asked: Mapping[str, Any], tasks: Mapping[TaskName, Task], tokenisers: Any
) -> ParsedQuery:
    """The same of a body with texts.

    Raises:
        ModellessError: it is wrong, or takes too much memory.
    """
    import_module(TEXTS)
    try:
        with Bounded(len(body), TEXT_BYTES):
            return _of_texts(body, asked, tasks, tokenisers)
    except (MemoryError, SystemError):
        raise PayloadTooLarge("the texts of the body take too much memory to be read") from None


def _of_texts(
    body: bytearray, asked: Mapping[str, Any], tasks: Mapping[TaskName, Task], tokenisers: Any
) -> ParsedQuery:
    reading = import_module(TEXTS)
    received_ms, draw = float(asked["received_ms"]), int(asked["draw"])
    if asked["task"] is None:
        document = json_of(body)
        try:
            found = reading.texts_v1(document, tasks, tokenisers, received_ms, draw)
        except ModellessError as error:
            name_task(error, document.get("task"), tasks)
            raise
    else:
        header, end = asked["json_header"], len(body)
        if header is not None:
            end = json_length(str(header).encode("latin-1"), end)
        found = reading.texts_v2(
            json_of(body[:end]), memoryview(body)[end:], str(asked["task"]), asked["pinned"], tasks,
            tokenisers, received_ms, draw,
        )  # fmt: skip
    return found  # type: ignore[no-any-return]


def _parsed(
    body: bytearray, asked: Mapping[str, Any], tasks: Mapping[TaskName, Task], most_bytes: float
) -> ParsedQuery:
    received_ms, draw = float(asked["received_ms"]), int(asked["draw"])
    if asked.get("image") is not None:
        # Pillow is imported only where somebody asks by image, or a task expects that.
        return import_module(PIXELS).parse_image(  # type: ignore[no-any-return]
            body, asked["image"], tasks, received_ms, draw
        )
    if asked["task"] is None:
        return parse_v1(body, tasks, received_ms, draw, most_bytes=most_bytes)
    header = asked["json_header"]
    return parse_v2(
        body, str(asked["task"]), asked["pinned"], tasks, received_ms, draw,
        None if header is None else str(header).encode("latin-1"), most_bytes=most_bytes,
    )  # fmt: skip


def _check_nesting(body: bytearray) -> None:
    """Refuse a body of which little but lists and objects would come.

    Raises:
        PayloadTooLarge: there are too many.
    """
    count = body.count(b"[") + body.count(b"{")
    if count * FEWEST_BYTES > len(body):
        raise PayloadTooLarge(
            f"the body has {count} lists and objects, too many for its size where they are not rows"
            " of numbers that fit the task"
        )


def serve(connection: socket.socket) -> None:
    """Read and answer until the gateway has gone."""
    tasks: dict[TaskName, Task] = {}
    tokenisers: Any = None
    came = cast(BufferedReader, connection.makefile("rb", TOGETHER))
    connection.sendall(PREFIX.pack(2, 0) + b"{}")  # it is there
    while head := _exactly(came, PREFIX.size):
        described_bytes, body_bytes = PREFIX.unpack(head)
        asked = orjson.loads(_exactly(came, described_bytes))
        body = _exactly(came, body_bytes)
        if "tasks" in asked:
            tasks = tasks_of(asked["tasks"], asked.get("own_texts", ()), asked.get("unread", ()))
            if "tokenizers" in asked:
                tokenisers = tokenisers or import_module(TEXTS).Tokenisers()
                tokenisers.follow(asked["named"], _apart(body, asked["tokenizers"]))
                connection.sendall(pieces(orjson.dumps(LOADED), [])[0])
            elif any(map(expects_images, tasks.values())):
                import_module(PIXELS)
            continue
        try:
            answer, chunks = described(read(body, asked, tasks, tokenisers))
        except ModellessError as error:
            answer, chunks = error_as_json(error), []
        except Exception as error:
            answer, chunks = {"error": Internal.__name__, "message": repr(error)[:4_000]}, []
        del body
        for piece in pieces(orjson.dumps(answer), chunks):
            connection.sendall(piece)


def _apart(data: bytearray, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """What lies one after the other, by names, to how many bytes each has."""
    found, at = {}, 0
    for name, size in sizes.items():
        found[name] = bytes(data[at : at + size])
        at += size
    return found


def _exactly(came: BufferedReader, count: int) -> bytearray:
    """So many bytes; none at all where the other side has closed."""
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        got = came.readinto(view[at:])
        if not got:
            return bytearray()
        at += got
    return data


def main() -> None:
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
