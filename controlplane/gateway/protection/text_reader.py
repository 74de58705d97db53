"""TextReader: texts are read in a process that has the tokenizers of all tasks.

A large tokenizer takes a second to be loaded, in which its process reads nothing. So where one
comes to a process that has others, a second process loads all of them beside it, and takes its
place once they are there: for so long the tokenizers are held twice. Texts that only the new
tokenizer reads wait for the second process; those of other tasks, and of models that were there
before, do not.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.gateway.protection.body_reader import LOAD_S, START_S, BodyReader, Done
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.texts.asked import TokenizerLoading
from planner.types import ANYBODY, Client
from variants.buckets import TaskTable
from variants.errors import ModellessError
from variants.types import Task, TaskName

log = logging.getLogger(__name__)

LARGE_BYTES = 2**19
"""Of new tokenizers, packed, from which on they are loaded beside: some 100,000 pieces. Less takes
a fraction of the time in which a process starts."""

Tasks = Mapping[TaskName, Task]


class TextReader:
    """The process that reads texts, and while it is replaced the one that will. Lives on one event
    loop."""

    def __init__(self) -> None:
        self._serving = BodyReader(texts=True)
        self._next: BodyReader | None = None
        """Loads what ``_serving`` lacks."""
        self._seen: Tasks | None = None
        """The tasks that were looked at last."""
        self._there: Tasks = {}
        """The same with those tokenizers alone that ``_serving`` has."""
        self._timer: asyncio.TimerHandle | None = None

    def read(
        self,
        body: bytes | bytearray,
        asked: Mapping[str, Any],
        tasks: Tasks,
        done: Done,
        client: Client = ANYBODY,
        refused: Callable[[], bool] | None = None,
    ) -> None:
        """As ``BodyReader.read``."""
        self._follow(tasks)

        def first(found: ParsedQuery | ModellessError) -> None:
            if isinstance(found, TokenizerLoading):
                reader = self._next or self._serving
                reader.read(body, asked, self._seen or tasks, done, client, refused)
            else:
                done(found)

        self._serving.read(body, asked, self._there, first, client, refused)

    def prepare(self, tasks: Tasks) -> None:
        """As ``BodyReader.prepare``."""
        self._follow(tasks)
        self._serving.prepare(self._there)

    def close(self) -> None:
        """As ``BodyReader.close``."""
        for reader in (self._serving, self._next):
            if reader is not None:
                reader.close()
        self._next = None
        self._stop_timer()

    def _follow(self, tasks: Tasks) -> None:
        """See to it that the tokenizers of these tasks are there, or are being loaded."""
        if tasks is self._seen:
            return
        self._seen = self._there = tasks
        has = self._serving.tokenizers
        if not isinstance(tasks, TaskTable) or not has:
            return
        new = tasks.tokenizers.keys() - has
        if sum(len(tasks.tokenizers[name]) for name in new) < LARGE_BYTES:
            self._drop_next(self._serving)
            return
        known = {name: data for name, data in tasks.tokenizers.items() if name in has}
        self._there = TaskTable(tasks.values(), known, tasks.own_texts, tasks.unread)
        if self._next is None:
            self._next = BodyReader(texts=True, loaded=self._change_over)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(START_S + LOAD_S, self._give_up)
        self._next.prepare(tasks)

    def _change_over(self) -> None:
        """What was loaded beside serves from now on."""
        if self._next is None:
            return
        before, self._serving, self._next = self._serving, self._next, None
        self._stop_timer()
        before.finish()
        if self._seen is not None:
            self._there = self._seen

    def _give_up(self) -> None:
        """Load in the process that serves what could not be loaded beside it."""
        log.warning("a tokenizer was not loaded in time beside those that are there")
        if self._seen is not None:
            self._there = self._seen
        self._drop_next(self._serving)

    def _drop_next(self, instead: BodyReader) -> None:
        self._stop_timer()
        if self._next is not None:
            reader, self._next = self._next, None
            reader.hand_over(instead)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
