"""Notices: what an operator or a cloud's hook says of a node that goes, passed on to Ray.

One that cannot be read, or that Ray fails on, holds up neither the others nor what is seen of nodes
beside them.
"""

import contextlib
from typing import NamedTuple, Protocol

import orjson

from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from variants.errors import ClusterUnavailable, StateUnavailable


class Notice(NamedTuple):
    """A node goes."""

    node: str
    """Ray's id of it."""
    why: str
    until_s: float
    """Unix time; 0: when it is done."""


class Drains(Protocol):
    """What is told of nodes that go: Ray."""

    async def drain(self, node: str, why: str, until_s: float) -> str: ...


class Notices:
    """Passes each notice on once."""

    def __init__(self, live: LiveState, journal: Journal) -> None:
        self._live = live
        self._journal = journal
        self._done: set[bytes] = set()
        """What was passed on or told of, and may stand in the live state still."""

    async def pass_on(self, ray: Drains) -> None:
        """Tell Ray of nodes that somebody said go.

        Raises:
            ClusterUnavailable: Ray does not answer; what it was not told, the next call tells.
        """
        try:
            waiting = await self._live.notices()
        except StateUnavailable:
            return
        self._done &= set(waiting)
        for written in waiting:
            if written not in self._done:
                await self._pass(ray, written)
            if written in self._done:
                with contextlib.suppress(StateUnavailable):
                    await self._live.noticed(written)

    async def _pass(self, ray: Drains, written: bytes) -> None:
        notice = read_notice(written)
        if notice is None:
            said = written[:100].decode(errors="replace")
            self._journal.tell("nodes", "cluster", f"a notice of a node cannot be read: {said}")
            self._done.add(written)
            return
        try:
            refusal = await ray.drain(*notice)
        except ClusterUnavailable:
            raise
        except Exception as error:  # private parts of Ray are told; this is tried again
            self._journal.unexpected("notice of a node", error)
            return
        self._journal.over("notice of a node")
        if refusal:
            self._journal.tell("nodes", notice.node, f"Ray does not let it drain: {refusal}")
        self._done.add(written)


def read_notice(written: bytes) -> Notice | None:
    """A notice as the live state has it; None where it is none."""
    try:
        said = orjson.loads(written)
        notice = Notice(str(said["node"]), str(said["why"]), float(said["until_s"]))
    except (ValueError, TypeError, KeyError):
        return None
    return notice if notice.node else None
