"""Changes: what somebody has written is taken up by all gateways before he is told that it is done.

A gateway asks all others through the live state, looks itself, and answers when others ask. Those
whose changes come meanwhile share the next question: each would take a connection to the live state
for as long as it waits, of which a process has a hundred.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from controlplane.gateway.background import Background
from controlplane.gateway.canaries.feedback import Feedback
from controlplane.gateway.http.followed_keys import FollowedKeys
from controlplane.gateway.looks import Looks
from controlplane.live_state import LiveState
from controlplane.live_state.following import LOOK, LOOKED, PATIENCE_S, UNASKED_S, taken_up
from variants.errors import StateUnavailable

log = logging.getLogger(__name__)


class Changes:
    """One gateway's part in it. Lives on one event loop."""

    def __init__(
        self,
        live: LiveState,
        look: Callable[[], Awaitable[None]],
        others: Callable[[], bool],
        background: Background,
        feedback: Feedback,
    ) -> None:
        """
        Args:
            look: reads what may have changed, and takes it over (``Looks.look``).
            others: whether other gateways may run.
            feedback: answers what others ask about answers that this gateway gave.
        """
        self._live = live
        self._questions = Looks(lambda: taken_up(live))
        self._look = look
        self._others = others
        self._background = background
        self._feedback = feedback
        self.keys: FollowedKeys | None = None
        """The keys of clients, once they are followed."""

    async def follow_questions(self) -> None:
        """Answer what all gateways are asked, as long as the live state is there."""
        # What was asked before it listened it looks at now.
        async for token, question in self._live.questions(listening=self._background.wake):
            if question == LOOK:
                self._background.spawn(self._look_for(token))
            elif (elsewhere := self._feedback.elsewhere) is not None:
                await elsewhere.answer(token, question)
            else:  # it cannot be on another machine than who asks
                await self._live.answer(token, {})

    async def known_everywhere(self) -> None:
        """Return when all gateways, this one included, go by what was just written; where some of
        them cannot be asked, when they have looked by themselves.

        This one looks without being asked: it may have lost the connection by which it would hear
        of it a moment ago.
        """
        own = self._background.spawn(self._looked())
        everywhere = False
        with contextlib.suppress(StateUnavailable):
            everywhere = await self._questions.look()
        # The change is made, whatever reads it hangs: who made it is told so.
        await asyncio.wait((own,), timeout=PATIENCE_S)
        if not everywhere and self._others():
            await asyncio.sleep(UNASKED_S)

    async def _look_for(self, token: str) -> None:
        """Look at what somebody has changed, and tell him when that is done."""
        with contextlib.suppress(StateUnavailable):
            await self._live.answer(token, {LOOKED: await self._looked()})

    async def _looked(self) -> bool:
        """Take over what catalog and keys say now; whether both could be read."""
        try:
            await self._look()
            if self.keys is not None:
                await self.keys.look_now()
        except StateUnavailable:
            return False
        except Exception:
            log.exception("what was changed could not be taken up")
            return False
        return True
