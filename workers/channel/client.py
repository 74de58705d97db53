"""The tensor channel, from the side of gateway and controller: one connection to one worker.

Both sides prove that they know the cluster secret before anything else is said. A query costs no
future and no task: ``infer`` writes, and the reply calls back.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from planner.types import ANYBODY, DEFAULT_PRIORITY, Client, QueueNews
from variants.errors import Overloaded, ReplicaLost
from workers.channel.address import connect
from workers.channel.frames import MOST_CLIENTS, FrameKind, bytes_of, infer_frame, small_frame
from workers.channel.lending import SHARED_FROM
from workers.channel.messages import decode, decode_checked, decode_history, decode_replica, encode
from workers.channel.queue_news import Wanted, encode_wanted
from workers.channel.reply import SILENT, Reply, leaving_reply, lost_reply
from workers.channel.session import WorkerSession, call_back
from workers.channel.shared_clock import LONGEST_US, moment_us
from workers.channel.shared_memory import Budget
from workers.process.last_batch import query_entry, read_running
from workers.runtimes.protocol import Tensor
from workers.types import Checked, LoadSpec, Occurrence, ReplicaStatus, WorkerStatus


class WorkerConnection(WorkerSession):
    """An authenticated connection. Make one with ``open``."""

    @classmethod
    async def open(
        cls, address: str, secret: bytes, *,
        on_status: Callable[[WorkerStatus], None], on_lost: Callable[[str], None],
        timeout_s: float = 2.0, max_frame_mib: int = 64, shared_from: int = SHARED_FROM,
        budget: Budget | None = None,
    ) -> "WorkerConnection":  # fmt: skip
        """Connect to ``unix:/path`` or ``tcp:host:port`` and return once a first status is there.

        ``on_status`` is called for every report, the first included; ``on_lost`` once, when a
        connection that was opened ends for another reason than ``close``. Tensors of
        ``shared_from`` bytes are lent to a worker of this machine, smaller ones are sent, and all
        where ``budget``, that of this process, leaves no memory for it.

        Raises:
            NoCommonVersion: a worker answers that speaks other versions of the channel.
            ReplicaLost: no worker answers there, or not in time, or in another way.
            Unauthenticated: one side does not know the other's secret.
        """
        connection = cls(address, secret, on_status, on_lost, max_frame_mib, shared_from, budget)
        try:
            async with asyncio.timeout(timeout_s):
                await connect(address, connection)
                await connection._ready
        except TimeoutError as error:  # an OSError too
            connection.close()
            raise ReplicaLost(
                f"worker at {address} did not answer within {timeout_s:,g} s"
            ) from error
        except (OSError, ValueError) as error:
            raise ReplicaLost(f"worker at {address} cannot be reached: {error}") from error
        except asyncio.CancelledError:
            connection.close()
            raise
        return connection

    def infer(
        self, variant: int, rows: int, budget_us: int, tensors: Sequence[Tensor],
        on_reply: Callable[[Reply], None], priority: int = DEFAULT_PRIORITY,
        client: Client = ANYBODY,
    ) -> int:  # fmt: skip
        """Send a query and return its id. ``on_reply`` is called exactly once, never from here.

        Args:
            variant: the number of the task's variant (``workers.types.variant_id``).
            budget_us: what is left until the reply has to leave the worker, in µs.
            tensors: the inputs, each of shape (rows, ...).
            priority: 1 is the highest. It counts where not all can be served, as ``client`` does.

        Raises:
            TypeError: a tensor has a type that the channel does not carry.
        """
        request_id = next(self._ids) & 0xFFFFFFFF
        if self._lost or self._leaving:
            reply = lost_reply(self._reason) if self._lost else leaving_reply()
            self._loop.call_soon(on_reply, reply)
            return request_id
        if not 0 <= budget_us <= 0xFFFFFFFF:
            budget_us = 0 if budget_us < 0 else 0xFFFFFFFF
        until = self._one_clock and budget_us <= LONGEST_US
        if until:
            budget_us = moment_us(budget_us)
        number = 0
        if self._version == 1:
            priority = 0 if priority == DEFAULT_PRIORITY else priority
        elif client is not ANYBODY:
            number = self._number_of(client)
        asked = (request_id, variant, rows, budget_us, tensors, priority, until, number)
        lent: bytes | None = None
        if self._lending is not None and bytes_of(tensors) >= self._shared_from:
            lent = self._lending.frame(*asked)
        chunks = infer_frame(*asked) if lent is None else [lent]
        self._pending[request_id] = on_reply
        self._outbox.write(chunks)
        return request_id

    def withdraw(self, request_id: int) -> bool:
        """Tell that nobody waits for a query any more. The worker need not run it where it has not
        begun; a reply comes in any case. One that was replied to is no error.

        Returns:
            Whether its reply is still to come.
        """
        if request_id not in self._pending:
            return False
        if self.status.withdraws and not self._lost:
            self._outbox.write([small_frame(FrameKind.WITHDRAW, b"", request_id=request_id)])
        return True

    def _number_of(self, client: Client) -> int:
        """The number of a client on this connection, which the worker learns with its first query.

        Those that there may be are numbered anew when one more comes: others have no key any more.
        """
        number = self._clients.get(client)
        if number is None:
            if len(self._clients) >= MOST_CLIENTS:
                self._clients.clear()
            number = self._clients[client] = len(self._clients) + 1
            self._outbox.write([small_frame(FrameKind.CLIENT, encode(client._asdict()))])
        return number

    async def load(
        self,
        spec: LoadSpec,
        timeout_s: float,
        *,
        make_room: bool = False,
        waiting: bool = False,
        patience_s: float = 0.0,
        begin: bool = False,
        need: str = "",
        evicts: bool = True,
    ) -> ReplicaStatus:
        """Load a variant and return once it is ready; a loaded one takes over share and latencies.

        Args:
            make_room: queries ask for it: what is worth less may be evicted.
            waiting: with ``make_room``: a query waits for this load.
            patience_s: how much later than at once the load may begin, for that query to be
                answered in time.
            begin: return when the load has begun, and its memory is reserved.
            need: with ``make_room``: what the query asks for, in words, for the worker's history.
            evicts: with ``make_room``: False where the load takes free memory only.

        Raises:
            RuntimeFailed: it cannot be loaded.
            Overloaded: there is no room.
            Conflict: it is in quarantine.
            DeadlineExceeded: it took too long; it may become ready later.
            ReplicaLost: the connection ended.
        """
        message = encode(
            {
                "spec": spec, "make_room": make_room, "waiting": waiting,
                "patience_s": patience_s, "begin": begin, "need": need, "evicts": evicts,
            }
        )  # fmt: skip
        return decode_replica(decode(await self._ask(FrameKind.LOAD, message, timeout_s)))

    async def unload(
        self, task: str, variant: str, timeout_s: float, *, seen: tuple[int, bool] | None = None
    ) -> bool:
        """Unload a variant once its queries are answered. One that is not loaded is no error.

        Args:
            seen: ``load_no`` and ``asked`` as they were when this was decided; what has been
                loaded anew or asked for since stays.

        Returns:
            Whether it is gone.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        message = encode({"task": task, "variant": variant, "seen": seen})
        return (
            decode(await self._ask(FrameKind.UNLOAD, message, timeout_s)).get("gone") is not False
        )

    async def readmit(self, task: str, variant: str, timeout_s: float) -> None:
        """End the quarantine of a variant; one that is in none is no error.

        Raises:
            Conflict: its runtime is still being closed.
            DeadlineExceeded: it took too long.
            ReplicaLost: the connection ended.
        """
        message = encode({"task": task, "variant": variant})
        await self._ask(FrameKind.READMIT, message, timeout_s)

    async def check(self, task: str, variant: str, timeout_s: float) -> Checked:
        """Run a few lone batches of a variant, so that live latency knows what it takes.

        Raises:
            NotFound: it is not ready there.
            Overloaded: there was no time for it, or the worker is of a release that cannot.
            RuntimeFailed: it failed.
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        if not self._handshake.negotiated:
            raise Overloaded("a worker of an older release checks no profiles")
        message = encode({"task": task, "variant": variant})
        return decode_checked(await self._ask(FrameKind.CHECK, message, timeout_s))

    async def history(
        self, told: Collection[int], after: int, timeout_s: float
    ) -> list[Occurrence]:
        """Loads and evictions for queries that the worker still remembers, oldest first.

        Args:
            told: numbers of those that are stored for good; the worker forgets them.
            after: only those with a higher number are returned.

        Raises:
            DeadlineExceeded: it took too long.
            ReplicaLost: the connection ended.
        """
        message = encode({"told": list(told), "after": after})
        return decode_history(await self._ask(FrameKind.HISTORY, message, timeout_s))

    async def drain(self, timeout_s: float) -> None:
        """Make the worker refuse new queries, for good, and return once all others are answered.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        await self._ask(FrameKind.DRAIN, b"{}", timeout_s)

    def joined(self, task: str, variant: str, queries: int, *, waits: bool) -> None:
        """Tell that more queries found a variant missing than the one that its load was for.

        There is no answer.

        Args:
            waits: they waited for the load; else they could not.
        """
        named = {"task": task, "variant": variant}
        self._tell(FrameKind.JOINED, encode({**named, "queries": queries, "waiting": waits}))

    def follow(self, wanted: Wanted, told: Callable[[QueueNews], None]) -> None:
        """Have the worker tell of its queue. A worker of a release that does not says nothing.

        Args:
            wanted: when.
            told: called with what it tells.
        """
        if self.status.tells_queue:
            self._on_queue = told
            self._tell(FrameKind.FOLLOW, encode_wanted(wanted))

    def hand_back(self) -> None:
        """Answer the queries as lost that the worker has and does not run: it says nothing.

        Where it cannot be read what it runs, none: a query that hangs its worker must not be tried
        on the next one. The connection stays.
        """
        running = read_running(self.status.page) if self.status.page else None
        if running is None:
            return
        tag = self._handshake.tag
        for request_id in tuple(self._pending):
            if not running.company_of(query_entry(tag, request_id)):
                on_reply = self._pending.pop(request_id, None)
                if on_reply is not None:
                    call_back(on_reply, lost_reply(SILENT))

    def close(self) -> None:
        """End the connection. Queries without a reply get ``LOST``; ``on_lost`` is not called."""
        self._end("closed", announce=False)
