"""Two installations on one catalog or one live state: the second one finds out, and does not plan.

On one catalog each would have its workers scaled and loaded as if they were all there is, and take
the lead from the other with every turn. On one live state each would send its queries to the
other's workers. An installation is known by its channel secret: who has the same one is
the same installation, such as a successor on another machine.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from math import ceil, inf
from socket import gethostname
from time import monotonic, sleep

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.succession import EVENTS_READ, RESTORED, TELLING
from controlplane.live_state import LiveState, opened
from variants.catalog.protocol import Catalog
from variants.errors import StateUnavailable
from workers.channel.secret import own_digest

log = logging.getLogger(__name__)

SILENT_S = 90.0
"""A control loop writes at least once a minute; one that has not for so long is gone."""
REPLACED_S = 30.0
"""A control loop that was stopped is not replaced any more after so long."""
BEHIND_S = 86_400.0
"""The clock of another host may be behind by as much: what was written less long ago by it may be
of just now, so that only watching tells whether somebody writes."""
CLAIM_S = 15
"""For so long a live state stays with a control loop that was last heard; it writes each second."""
AGAIN_S = 5.0
CLUSTER = "@"
"""Before the cluster, in the name of who leads: behind the host. The replica stands last, where
commands of earlier builds look for it."""


def owner_of(secret: bytes, replica: str, cluster: str = "") -> str:
    """Who leads, as the catalog keeps it: installation, host and replica.

    Args:
        cluster: the name of the Ray cluster's session, which begins with when its head was started;
            it stays where a head comes back with what it knew.
    """
    where = f"{CLUSTER}{cluster}" if cluster else ""
    return f"{own_digest(secret)[:12]} {gethostname()}{where} {replica}"


def leads(leader: str, replica: str) -> bool:
    """Whether who leads, as the catalog keeps it, is this replica of the control loop."""
    named = leader.split()
    return len(named) == 3 and named[2].partition(CLUSTER)[0] == replica


def led_by_newer_cluster(owner: str, leader: str) -> bool:
    """Whether who leads is of the owner's installation, and of a Ray cluster that began later."""
    own, own_cluster = _installation_and_cluster(owner)
    other, cluster = _installation_and_cluster(leader)
    return own == other and bool(own_cluster) and cluster > own_cluster


def led_by_another_cluster(owner: str, leader: str) -> bool:
    """Whether who led is of the owner's installation, and of another Ray cluster."""
    own, own_cluster = _installation_and_cluster(owner)
    other, cluster = _installation_and_cluster(leader)
    return own == other and bool(own_cluster and cluster) and cluster != own_cluster


def cluster_of(owner: str) -> str:
    """The Ray cluster in the name of who leads; "" where it says none."""
    return _installation_and_cluster(owner)[1]


def _installation_and_cluster(owner: str) -> tuple[str, str]:
    named = owner.split()
    if len(named) != 3:
        return "", ""
    # For a day it stood behind the replica.
    cluster = named[1].partition(CLUSTER)[2] or named[2].partition(CLUSTER)[2]
    return named[0], cluster


def may_be_behind_s(catalog_url: str) -> float:
    """How far the clock of another installation on this catalog may be behind."""
    # A file is used by one machine, whose clock all go by.
    return 0.0 if catalog_url.startswith("sqlite") else BEHIND_S


async def until_alone(
    owner: str,
    catalog: Catalog,
    live: LiveState,
    journal: Journal,
    wall_s: Callable[[], float],
    behind_s: float = BEHIND_S,
    *,
    clock_s: Callable[[], float] = monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return when no other installation plans by this catalog, or uses this live state, and when no
    newer cluster of this one has it.

    Another installation is told of. A live state that does not answer is waited for by nobody.

    Args:
        wall_s: Unix time.
        behind_s: how far the clock of another one may be behind (``may_be_behind_s``).
        clock_s: a clock that nobody sets.
        pause: waits for so many seconds.

    Raises:
        StateUnavailable: the database does not answer.
    """
    told = waits = False
    silence = _Silence(clock_s)
    while True:
        # One that is deployed anew stops, and its successor leads a few seconds later.
        other = await asyncio.to_thread(
            other_installation, owner, catalog, wall_s(), REPLACED_S, behind_s
        )
        if other is not None:
            newest = await asyncio.to_thread(catalog.ticks, 1)
            if silence.lasts_s(newest[0].at if newest else "") > SILENT_S:
                other = None
        subject = "catalog"
        if other is None and await _led_by_newer_cluster(owner, live):
            if not waits:
                waits = True
                log.info("a newer cluster of this installation leads: this one waits for its end")
            await pause(AGAIN_S)
            continue
        if other is None:
            subject, other = "live state", await claimed_by_another(owner, live)
        if other is None:
            return
        if not told:
            told = True
            journal.tell("other_installation", subject, other)
            with contextlib.suppress(StateUnavailable):
                await journal.store_events()
        await pause(AGAIN_S)


async def _led_by_newer_cluster(owner: str, live: LiveState) -> bool:
    """By the live state, which who leads has for seconds after it was last heard."""
    try:
        return led_by_newer_cluster(owner, await live.owner())
    except StateUnavailable:
        return False


class _Silence:
    """For how long another one has written nothing new, by our own clock: by its own, which may be
    ahead, what it wrote last is of the future for long after it is gone; and one that is behind
    would have it gone while it writes."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._at, self._since_s = "", 0.0

    def lasts_s(self, at: str) -> float:
        """Since what was written last was seen first.

        Args:
            at: when that was, by the other one's clock.
        """
        now_s = self._clock_s()
        if at != self._at:
            self._at, self._since_s = at, now_s
        return now_s - self._since_s


def other_installation(
    owner: str,
    catalog: Catalog,
    now_s: float,
    stopped_s: float = -inf,
    behind_s: float = 0.0,
) -> str | None:
    """A sentence about another installation that plans by this catalog; None where there is none.

    Args:
        owner: who wants to lead (``owner_of``).
        catalog: of both.
        now_s: Unix time.
        stopped_s: how long ago a control loop that said that it stops must have been heard to be
            gone; by default it is gone whatever its clock says.
        behind_s: how long ago one on another host that has not said so must have been heard to be
            gone whatever its clock says; by default that clock is trusted.

    Raises:
        StateUnavailable: the database does not answer.
    """
    host = _host_of_another(owner, catalog.leader())
    newest = () if host is None else catalog.ticks(1)
    if not newest:
        return None
    heard_s = now_s - datetime.fromisoformat(newest[0].at).timestamp()
    events = catalog.events(EVENTS_READ, TELLING)
    told = (one for one in events if one.kind.startswith("controller_") or one.kind == RESTORED)
    latest = next(told, None)
    if latest is not None and latest.kind == RESTORED and newest[0].at <= latest.at:
        return None  # it plans by the catalog that this one was copied from
    stopped = latest is not None and latest.kind == "controller_stopped"
    if stopped:
        gone_s = stopped_s
    else:
        gone_s = SILENT_S if host == gethostname() else max(SILENT_S, behind_s)
    if heard_s > gone_s:
        return None
    if not stopped and heard_s > SILENT_S:
        return (
            f"another installation, on {host}, has planned by the same catalog, and was heard"
            f" {heard_s:,.0f} s ago by its clock, which may be behind; if it writes nothing for"
            f" {SILENT_S:,.0f} s, this one can plan. Else stop it, or set MODELLESS_DATABASE_URL to"
            " a database of its own"
        )
    return (
        f"another installation, on {host}, plans by the same catalog and was heard"
        f" {max(0.0, heard_s):,.0f} s ago; stop it, or set MODELLESS_DATABASE_URL to a database of"
        f" its own. If it is gone, this one can plan {SILENT_S:,.0f} s after it was last heard"
    )


def ahead_s(catalog: Catalog, now_s: float) -> float:
    """How far the clock of who wrote the newest tick is ahead of ours, at least; below zero: how
    long ago that was.

    Raises:
        StateUnavailable: the database does not answer.
    """
    newest = catalog.ticks(1)
    return datetime.fromisoformat(newest[0].at).timestamp() - now_s if newest else 0.0


def writes_on(catalog: Catalog, pause: Callable[[float], None] = sleep) -> bool:
    """Watch whether a control loop writes, whatever its clock says; at the latest after
    ``SILENT_S`` it is gone.

    Raises:
        StateUnavailable: the database does not answer.
    """
    before = catalog.ticks(1)
    for _ in range(ceil(SILENT_S / AGAIN_S)):
        pause(AGAIN_S)
        if catalog.ticks(1) != before:
            return True
    return False


async def claimed_by_another(owner: str, live: LiveState) -> str | None:
    """Claim a live state; a sentence about another installation that has it, None if none does."""
    try:
        return held_by_another(owner, await live.claim(owner, CLAIM_S))
    except StateUnavailable:
        return None  # whoever needs it says so


async def using(url: str, owner: str) -> str | None:
    """A sentence about another installation that has the live state there, None if none does.

    Args:
        owner: who wants to have it (``owner_of``).
    """
    try:
        async with opened(url) as live:
            return held_by_another(owner, await live.owner())
    except StateUnavailable:
        return None


def held_by_another(owner: str, holder: str) -> str | None:
    """A sentence about another installation that has a live state, None if it is this one's.

    Args:
        owner: who wants to have it (``owner_of``).
        holder: who has it; empty where nobody does.
    """
    host = _host_of_another(owner, holder)
    if host is None:
        return None
    return (
        f"another installation, on {host}, uses the same live state; stop it, or give this one"
        " a server or a database number of its own with MODELLESS_REDIS_URL. If it is gone, this"
        f" one can begin within {CLAIM_S} s"
    )


def _host_of_another(owner: str, leader: str) -> str | None:
    """The host of who leads, if that is an installation other than the owner's."""
    named = leader.split()
    if len(named) != 3 or named[0] == owner.split(maxsplit=1)[0]:
        return None
    return named[1].partition(CLUSTER)[0]
