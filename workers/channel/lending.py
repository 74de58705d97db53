"""Lending: how one connection hands large tensors to a worker of its machine.

The first large query offers a block of shared memory, and goes through the socket, as all do until
the worker has taken it. So do those for which the block has no room, and all where the worker takes
none: because it is of another release, or cannot reach this process's memory. An offer waits for
its answer as long as the connection lives, for a worker that loads may be slow to say anything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from planner.types import DEFAULT_PRIORITY
from variants.errors import ModellessError
from workers.channel.frames import FrameKind, infer_lent_frame, layout_of, signature_of
from workers.channel.messages import encode
from workers.channel.shared_memory import BLOCK_BYTES, Budget, LentBlock
from workers.runtimes.protocol import Tensor

log = logging.getLogger(__name__)

SHARED_FROM = 32_768
"""Bytes of tensors from which lending them costs both ends less than sending them where several
queries are in flight; a lone one gains from 64 kB on (``tests.bench.serving.channel``)."""
AGAIN_S = 60.0
"""So long after a block that could not be made or was not taken another one is offered."""


class Lending:
    """The block of one connection, from the first large query on."""

    def __init__(
        self, ask: Callable[[FrameKind, bytes, None], Awaitable[bytes]], budget: Budget
    ) -> None:
        """
        Args:
            ask: sends a message and returns its answer, however late; raises when the connection
                has ended.
            budget: of the process, for all of its connections.
        """
        self._ask = ask
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._offering: asyncio.Task[None] | None = None
        self._offer_at_s = 0.0
        """When a block may be offered next, by the loop's clock."""
        self._failures = 0
        """Offers that came to nothing."""
        self._closed = False
        self.block: LentBlock | None = None
        """What the worker has taken. Looked at before ``returned`` is called: most have none."""

    def frame(
        self, request_id: int, variant: int, rows: int, budget_us: int, tensors: Sequence[Tensor],
        priority: int = DEFAULT_PRIORITY, until: bool = False, client: int = 0,
    ) -> bytes | None:  # fmt: skip
        """Lend tensors and return the frame that says so; None where they have to be sent.

        The arguments are those of ``frames.infer_frame``.

        Raises:
            TypeError: a tensor has a type that the channel does not carry.
        """
        if self.block is None:
            if self._offering is None and self._loop.time() >= self._offer_at_s:
                self._offering = self._loop.create_task(self._offer())
            return None
        signature = signature_of(tensors)
        begin = self.block.lend(request_id, layout_of(signature), tensors)
        if begin is None:
            return None
        return infer_lent_frame(
            request_id, variant, rows, budget_us, signature, begin, priority, until, client
        )

    async def _offer(self) -> None:
        """Have the worker take a block."""
        block: LentBlock | None = None
        self._offer_at_s = self._loop.time() + AGAIN_S
        try:
            block = LentBlock(BLOCK_BYTES, self._budget)
            await self._ask(FrameKind.LEND, encode(block.offer), None)
        except (OSError, ModellessError) as error:
            level = logging.DEBUG if self._failures or self._closed else logging.INFO
            log.log(level, "large tensors go through the socket: %s", error)
            self._failures += 1
        else:
            if not self._closed:
                self.block, block = block, None
        finally:
            self._offering = None
            if block is not None:
                block.close()

    def returned(self, request_id: int) -> None:
        """A query's reply has arrived."""
        if self.block is not None:
            self.block.returned(request_id)

    def reported(self) -> None:
        """The worker has sent a report."""
        if self.block is not None:
            self.block.reported(self._loop.time())

    def close(self) -> None:
        """The connection has ended."""
        self._closed = True
        block, self.block = self.block, None
        if block is not None:
            try:
                block.close()
            except OSError:
                log.exception("shared memory that was lent to a worker cannot be closed")
