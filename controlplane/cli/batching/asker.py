"""Asking rows until each has an answer or an error of its own, a few queries at a time.

What is refused for now is asked again when the gateway says, or later and later where it does not.
What is refused because of a row is asked in halves, until that row stands alone.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from controlplane.cli.asking.connections import UNANSWERED, UNREACHABLE, Answer, Connections
from controlplane.cli.batching.journal import Journal
from controlplane.cli.batching.row import Row
from controlplane.cli.batching.rows_query import (
    DEADLINE_MS,
    Batched,
    about_row,
    error_line,
    query_of,
    read_answer,
)
from controlplane.cli.gateway_client import Access
from controlplane.cli.outcome import NotRunning
from controlplane.http_errors import parse_error
from variants.errors import DeadlineExceeded, ModellessError, ReplicaLost

OF_ROWS = frozenset({"INVALID_INPUT", "PAYLOAD_TOO_LARGE", "INTERNAL"})
"""Codes that may be one row's: its numbers, or what the model makes of them."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
"""Where a refusal does not say when to come back; each wait is twice as long as the one before."""
PATIENCE_S = 600.0
"""When nothing was answered for so long, it ends; `--resume` goes on."""
GRACE_S = 10.0
SLOW = 2.0
"""Batches that take so many times as long as they should have too many rows."""
GROWS_AFTER = 50
"""Batches that take less than half as long as they may, until there are more rows again."""
LEAST_WINDOW = 1_024
"""Rows that may be asked while one before them is not done."""


class RowsPerQuery:
    """How many rows a query has: fewer once batches take long, and again as many once they do not.

    What a batch takes is what others wait for. The variant that answers may be another one than was
    expected, and the machine may have less time for it.
    """

    def __init__(self, most: int, *, most_ms: float = inf) -> None:
        """``most_ms``: what a batch should take; infinite where the number was given."""
        self.now = self.most = most
        self._most_ms = most_ms
        self._quick = 0

    def ran(self, run_ms: float) -> None:
        """A batch took so long."""
        if run_ms > SLOW * self._most_ms:
            self.now, self._quick = max(1, self.now // 2), 0
        elif self.now < self.most and run_ms <= self._most_ms / 2:
            self._quick += 1
            if self._quick == GROWS_AFTER:
                self.now, self._quick = min(self.most, 2 * self.now), 0


class Asker:
    """Asks the rows of a file once; what is done is in the journal."""

    def __init__(
        self,
        asked: Batched,
        journal: Journal,
        access: Access,
        *,
        rows_per_query: RowsPerQuery,
        in_flight: int,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._asked = asked
        self._journal = journal
        self._access = access
        self._rows_per_query = rows_per_query
        self._in_flight = in_flight
        self._window = max(LEAST_WINDOW, 8 * rows_per_query.most * in_flight)
        self._patience_s = patience_s
        self.variants: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        """How often it waited, by the code of the refusal."""
        self.waiting_for = ""
        """Why nothing is answered now, if so."""
        self._under_way: set[int] = set()
        """The first row of each query that is not done."""
        self._moved = asyncio.Event()
        self._answered_s = 0.0

    async def ask(self, rows: Iterator[Row], progress: Callable[[], None]) -> None:
        """Ask all rows that are not done; ``progress`` is called after each step.

        Raises:
            NotRunning: nothing was reached for as long as the patience lasts.
            ModellessError: all further rows would be refused for the same reason; or for so long
                none was answered.
        """
        self._answered_s = asyncio.get_running_loop().time()
        connections = Connections(self._access, self._in_flight)
        chunks = self._chunks(rows)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._in_flight):
                    group.create_task(self._work(connections, chunks, progress))
        except ExceptionGroup as failed:
            # Not ``except*``: early versions of Python 3.11 wrap what is raised there once more.
            wrong = [one for one in failed.exceptions if not isinstance(one, ModellessError)]
            if wrong:
                raise
            raise failed.exceptions[0] from None
        finally:
            await connections.close()

    def _chunks(self, rows: Iterator[Row]) -> Iterator[list[Row]]:
        """The rows that are not done, as many as go into a query; wrong ones stand alone.

        Where rows differ in length, those of one bucket wait for each other, but not for long.
        """
        chunks: dict[int, list[Row]] = {}
        for row in rows:
            if row.number in self._journal.done:
                continue
            most = self._rows_per_query.now
            if not row.wrong:
                bucket = self._asked.bucket(row)
                chunks.setdefault(bucket, []).append(row)
                if len(chunks[bucket]) >= most:
                    yield chunks.pop(bucket)
                elif sum(map(len, chunks.values())) >= 4 * most:
                    yield chunks.pop(next(iter(chunks)))
                continue
            yield from chunks.values()
            chunks.clear()
            yield [row]
        yield from chunks.values()

    async def _work(
        self, connections: Connections, chunks: Iterator[list[Row]], progress: Callable[[], None]
    ) -> None:
        for chunk in chunks:  # each takes the next one
            first = chunk[0].number
            self._under_way.add(first)
            while first - min(self._under_way) > self._window:
                self._moved.clear()
                await self._moved.wait()
            if chunk[0].wrong:
                self._refuse(chunk[0], "INVALID_INPUT", chunk[0].wrong)
                progress()
                await asyncio.sleep(0)  # others may have been answered meanwhile
            else:
                await self._settle(connections, chunk, progress)
            self._under_way.discard(first)
            self._moved.set()

    async def _settle(
        self, connections: Connections, rows: list[Row], progress: Callable[[], None]
    ) -> None:
        """Ask rows until each has an answer or an error."""
        refused = await self._refusal(connections, rows, progress)
        if refused is None:
            progress()
        elif refused.code not in OF_ROWS:
            raise refused
        elif len(rows) == 1:
            self._refuse(rows[0], refused.code, about_row(rows[0], refused.message))
            progress()
        else:
            half = len(rows) // 2
            await self._settle(connections, rows[:half], progress)
            await self._settle(connections, rows[half:], progress)

    def _refuse(self, row: Row, code: str, text: str) -> None:
        self._journal.note([row.number], [error_line(row, code, text)])
        self._journal.refused += 1

    async def _refusal(
        self, connections: Connections, rows: list[Row], progress: Callable[[], None]
    ) -> ModellessError | None:
        """Why a query is refused for good; None once it is answered and noted."""
        body, json_bytes = query_of(self._asked, rows)
        form = {"Content_Type": "application/json"}
        if json_bytes:
            form = {
                "Content_Type": "application/octet-stream",
                "Inference_Header_Content_Length": str(json_bytes),
            }
        head = connections.head(self._asked.path, **form)
        clock = asyncio.get_running_loop().time
        wait_s = FIRST_WAIT_S
        while True:
            answer = await connections.ask(head, body, DEADLINE_MS / 1_000 + GRACE_S)
            if answer.status == 200:
                self._note(rows, answer)
                self._answered_s, self.waiting_for = clock(), ""
                return None
            error = _error(answer, self._access)
            if not error.retryable:
                return error
            if clock() - self._answered_s > self._patience_s:
                raise error
            self.waits[error.code] += 1
            self.waiting_for = error.code
            progress()
            await asyncio.sleep(wait_s if error.retry_after_s is None else error.retry_after_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    def _note(self, rows: list[Row], answer: Answer) -> None:
        try:
            found = read_answer(self._asked, rows, answer)
        except ValueError as error:
            raise NotRunning(f"at {self._access.url}: {error}") from error
        self._journal.note([row.number for row in rows], found.lines)
        self.variants[found.variant] += len(rows)
        self._rows_per_query.ran(found.run_ms)


def _error(answer: Answer, access: Access) -> ModellessError:
    """Why a query was not answered."""
    if answer.failure == UNREACHABLE:
        return NotRunning(f"no gateway answers at {access.url}")
    if answer.failure == UNANSWERED:
        return DeadlineExceeded(f"{access.url} did not answer")
    if answer.failure:
        return ReplicaLost(f"the connection to {access.url} broke")
    return parse_error(answer.status, answer.body)


def rows_that_fit(explained: Any, profiles: list[Any], most_ms: float) -> int:
    """How many rows the variant that would answer runs in ``most_ms``; at least one.

    Args:
        explained: what ``/v1/explain`` says of one such row.
        profiles: those of the task.
    """
    answer = explained.get("answer") or {}
    sizes = [
        point["batch_size"]
        for profile in profiles
        if profile["variant"] == answer.get("variant")
        and profile["device_kind"] == answer.get("device_kind")
        for point in profile["points"]
        if point["p95_ms"] <= most_ms
    ]
    return max(sizes, default=1)
