"""BodyReader: long bodies are read in a process of their own, so that the event loop goes on.

Python's JSON parsers hold the interpreter while they read, so a thread would not help. The process
is started with the first long body, or before where a task expects pictures, and reads one after
the other. What takes too long is given up: the process is ended, and the next body gets a new one.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson

from controlplane.gateway.protection.body_frames import (
    LOADED,
    PREFIX,
    TOGETHER,
    own_texts_as_json,
    parsed_of,
    pieces,
    tasks_as_json,
)
from controlplane.gateway.protection.fair_queue import FairQueue
from controlplane.gateway.query.parsing import ParsedQuery
from planner.types import ANYBODY, Client
from variants.buckets import TaskTable
from variants.errors import InvalidInput, ModellessError, Overloaded
from variants.images import expects_images
from variants.types import Digest, Task, TaskName
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

LONG_BYTES = 2**18
"""JSON from this size on is read there; below, numbers are read here in at most 2 ms."""
UNUSUAL_BYTES = 2**15
"""JSON that is no plain list of numbers takes up to 0.27 ms of each KiB: it is read there from this
size on."""
READ_S = 1.0
READ_S_PER_MIB = 0.25
"""How long reading a body may take."""
START_S = 20.0
"""How long it may take until the process is there."""
MOST = 64
"""Bodies that are read or wait for it."""
MOST_BYTES = 256 * 2**20
"""Of all of them."""
MOST_TEXTS = 2_048
"""The same, where texts are read: each takes a fraction of a millisecond, mostly."""
LOAD_S = 30.0
"""How long tokenizers may take to be loaded."""
WAIT_S = 10.0
"""Who has waited for longer until others are read is told so: what they take is not his fault, and
his deadline is not known before his body is."""
LOOKED_S = 0.005
"""Who has waited for longer may have no time left. What is known of his query before it is read is
looked at then: reading takes longer than that, and would be in vain."""
_PIECE = 2**18

Done = Callable[[ParsedQuery | ModellessError], None]


class _Waiting(NamedTuple):
    body: bytes | bytearray
    asked: Mapping[str, Any]
    tasks: Mapping[TaskName, Task]
    done: Done
    since_s: float
    """By the event loop's clock."""
    refused: Callable[[], bool] | None
    """As of ``read``."""


def _asked(refused: Callable[[], bool]) -> bool:
    try:
        return refused()
    except Exception as error:
        sparing.error(
            "", error, "it cannot be said whether a query has time left before it is read"
        )
        return False


def _expects_texts(task: Task) -> bool:
    return task.text is not None


class BodyReader(asyncio.BufferedProtocol):
    """The process and what waits for it. Lives on one event loop."""

    def __init__(self, *, texts: bool = False, loaded: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            texts: whether texts are what it reads: it has the tokenizers of tasks then.
            loaded: called whenever it has loaded all that it was told of.
        """
        self._texts = texts
        self._loaded = loaded
        self._to_load = 0
        """Answers to come that say that tokenizers are loaded."""
        self._ending = False
        """Whether it ends once nobody waits."""
        self._many = f"too many {'texts' if texts else 'long bodies'} are being read"
        self._loading_s = 0.0
        """How much longer the next answer may take, as tokenizers are loaded before it."""
        self._tokenizers: frozenset[Digest] = frozenset()
        """The tokenizers that the process has loaded."""
        self._waiting = FairQueue[_Waiting]()
        self._bytes = 0
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = self._there = False
        self._there_s = 0.0
        """Since when the process is there."""
        self._told: Mapping[TaskName, Task] | None = None
        """The tasks that the process knows."""
        self._ahead: Mapping[TaskName, Task] | None = None
        """The tasks that the process is to know before it reads the first body."""
        self._short = memoryview(bytearray(TOGETHER))
        """What comes, but for long answers."""
        self._begun = bytearray()
        """What has come of answers that are not whole."""
        self._text = bytearray()
        self._long: bytearray | None = None
        """The tensors of a long answer, whose JSON has come."""
        self._at = 0
        """Bytes that have come of them."""

    def read(
        self,
        body: bytes | bytearray,
        asked: Mapping[str, Any],
        tasks: Mapping[TaskName, Task],
        done: Done,
        client: Client = ANYBODY,
        refused: Callable[[], bool] | None = None,
    ) -> None:
        """Read a body; ``done`` is called exactly once, with the query or with what is wrong.

        Args:
            asked: the other arguments of ``parse_v1`` or ``parse_v2``.
            client: who asks. Clients take turns, and none has all the places.
            refused: asked when it has waited for its turn: says whether the query has ended
                meanwhile, refused for want of time, or as its client has gone; then ``done`` is not
                called.
        """
        most = MOST_TEXTS if self._texts else MOST
        others = len(self._waiting) - self._waiting.of(client.name)
        full = len(self._waiting) >= most or (others and 2 * self._waiting.of(client.name) >= most)
        if full or self._bytes + len(body) > MOST_BYTES:
            done(Overloaded(self._many))
            return
        since_s = asyncio.get_running_loop().time()
        self._waiting.append(client.name, _Waiting(body, asked, tasks, done, since_s, refused))
        self._bytes += len(body)
        self._go_on()

    def prepare(self, tasks: Mapping[TaskName, Task]) -> None:
        """Have the process there, and what reads pictures or texts in it, where a task expects any:
        the first one waits for neither then. May be called again and again."""
        if tasks is self._told or tasks is self._ahead:
            return
        expects = _expects_texts if self._texts else expects_images
        if not any(map(expects, tasks.values())):
            return
        self._ahead = tasks
        self._go_on()

    @property
    def tokenizers(self) -> frozenset[Digest]:
        """Those that the process has, or is loading."""
        return self._tokenizers

    def finish(self) -> None:
        """End the process once all that waits has been read."""
        self._ending = True
        if not self._waiting:
            self.close()

    def hand_over(self, to: "BodyReader") -> None:
        """Have another one read what waits, and end the process."""
        left = []
        while self._waiting:
            left.append(self._waiting.popleft())
        self._bytes, self._busy = 0, False
        self.close()
        for one in left:
            to.read(one.body, one.asked, one.tasks, one.done, refused=one.refused)

    def close(self) -> None:
        """End the process; what waits gets no answer, its connections are closed."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._starting is not None:
            self._starting.cancel()
        self._kill()

    # -- one after the other ----------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._ending and not self._waiting:
            self.close()
            return
        if self._busy or not (self._waiting or self._ahead):
            return
        if not self._there:
            starts = self._starting is not None and not self._starting.done()
            if self._transport is None and not starts:
                self._starting = asyncio.create_task(self._start())
            return
        assert self._transport is not None
        if not self._waiting:
            if self._ahead is not None:
                self._tell(self._ahead)
            return
        body, asked, tasks, _, since_s, refused = self._waiting.first()
        now_s = asyncio.get_running_loop().time()
        if refused is not None and now_s - since_s > LOOKED_S and _asked(refused):
            self._next_one()
            return
        if now_s - max(since_s, self._there_s) > WAIT_S:
            self._answer(Overloaded(self._many))
            return
        self._busy = True
        if tasks is not self._told:
            self._tell(tasks)
        view = memoryview(body)
        parts = [view[at : at + _PIECE] for at in range(0, len(body), _PIECE)]
        for piece in pieces(orjson.dumps(asked), parts):
            self._transport.write(piece)
        limit_s = READ_S + READ_S_PER_MIB * len(body) / 2**20 + self._loading_s
        self._timer = asyncio.get_running_loop().call_later(limit_s, self._too_slow)

    def _next_one(self) -> None:
        """Leave the first that waits, which has its answer."""
        self._bytes -= len(self._waiting.popleft().body)
        asyncio.get_running_loop().call_soon(self._go_on)

    def _tell(self, tasks: Mapping[TaskName, Task]) -> None:
        """Send the tasks; the process imports what reads pictures where one expects them, and loads
        the tokenizers that it has not."""
        assert self._transport is not None
        told: dict[str, Any] = {"tasks": tasks_as_json(tasks.values())}
        packed: Mapping[Digest, bytes] = {}
        if self._texts and isinstance(tasks, TaskTable):
            there = tasks.tokenizers
            packed = {name: there[name] for name in there.keys() - self._tokenizers}
            told["tokenizers"] = {name: len(data) for name, data in packed.items()}
            told["named"] = list(there)
            told["own_texts"] = own_texts_as_json(tasks.own_texts)
            told["unread"] = list(tasks.unread)
            self._to_load += 1
            self._loading_s = LOAD_S if packed else self._loading_s
            self._tokenizers = frozenset(there)
        for piece in pieces(orjson.dumps(told), list(packed.values())):
            self._transport.write(piece)
        self._told, self._ahead = tasks, None

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "controlplane.gateway.protection.read_bodies",
                str(theirs.fileno()), pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[3],
            )  # fmt: skip
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
        except OSError as error:
            sparing.error("", error, "the reader of long bodies cannot be started")
            ours.close()
            self._ahead = None
            self._answer(Overloaded(f"long bodies cannot be read now: {error.strerror}"))
        finally:
            theirs.close()

    def _answer(self, found: ParsedQuery | ModellessError) -> None:
        """Answer the first that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._busy, self._loading_s = False, 0.0
        if self._waiting:
            first = self._waiting.popleft()
            self._bytes -= len(first.body)
            try:
                first.done(found)
            except Exception as error:
                sparing.error("", error, "a query with a long body failed")
        asyncio.get_running_loop().call_soon(self._go_on)

    def _too_slow(self) -> None:
        self._timer = None
        was_there = self._there
        self._kill()
        if was_there:
            self._answer(InvalidInput("the body takes too long to be read"))
        else:
            self._answer(Overloaded("long bodies cannot be read now: the reader does not start"))

    def _kill(self) -> None:
        transport, self._transport = self._transport, None
        process, self._process = self._process, None
        self._there, self._told, self._ahead = False, None, None
        self._tokenizers, self._loading_s, self._to_load = frozenset(), 0.0, 0
        if transport is not None:
            transport.abort()
        if process is not None and process.returncode is None:
            process.kill()

    # -- what comes back --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._told, self._there = None, False
        self._begun, self._long, self._at = bytearray(), None, 0
        self._timer = asyncio.get_running_loop().call_later(START_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # ended from here
        was_there = self._there
        self._kill()
        if self._busy or not was_there:
            self._answer(InvalidInput("the body cannot be read: reading it failed"))

    def get_buffer(self, sizehint: int) -> memoryview:
        # What is long comes to its place, and what is short comes whole, and more of it at once.
        if self._long is not None:
            return memoryview(self._long)[self._at :]
        return self._short

    def buffer_updated(self, nbytes: int) -> None:
        if self._long is not None:
            self._at += nbytes
            if self._at == len(self._long):
                text, data, self._long = self._text, self._long, None
                self._came(text, data)
            return
        self._begun += self._short[:nbytes]
        while len(self._begun) >= PREFIX.size:
            text_bytes, data_bytes = PREFIX.unpack_from(self._begun)
            begin = PREFIX.size + text_bytes
            end, there = begin + data_bytes, len(self._begun)
            if there < end and (there < begin or data_bytes <= TOGETHER):
                return
            text, data = self._begun[PREFIX.size : begin], self._begun[begin:end]
            self._begun = self._begun[end:]
            if there < end:
                self._text, self._at = text, len(data)
                self._long = data + bytearray(end - there)
                return
            self._came(text, data)

    def _came(self, text: bytearray, data: bytearray) -> None:
        """An answer has come in full; the first says that the process is there."""
        if not self._there:
            self._there, self._there_s = True, asyncio.get_running_loop().time()
            if self._timer is not None:
                self._timer.cancel()
            self._go_on()
            return
        found = orjson.loads(text)
        if found == LOADED:
            self._to_load -= 1
            if not self._to_load:
                self._loaded()
            return
        if not self._waiting:
            return
        try:
            self._answer(parsed_of(found, data, self._waiting.first().tasks))
        except ModellessError as error:
            self._answer(error)
