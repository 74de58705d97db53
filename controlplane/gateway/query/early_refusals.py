"""EarlyRefusals: queries that would be refused for want of time are, before their bodies are read.

A refusal may cost a tenth of an answer at most, so under pressure no more of a query is read than
says what it needs: headers, or the first fields of its body. What was refused a moment ago, and
still would be, is refused again by what was said then (``RepeatedRefusals``).
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import getrandbits
from typing import NamedTuple

from controlplane.gateway.overload.repeated_refusals import (
    Holds,
    Outline,
    Repeated,
    Wording,
    outline_of_headers,
)
from controlplane.gateway.query.in_flight import OTHERS_FIRST, TRIES
from controlplane.gateway.query.query_context import QueryContext, Respond
from controlplane.gateway.query.query_errors import refusal_error, worker_error
from controlplane.gateway.query.skimming import asked_by_headers
from planner.selection.refusal import is_only_choice, room_at_ms
from planner.types import ANYBODY, Choice, Client, Query, Refusal, RefusalCode
from variants.errors import ModellessError, Overloaded
from variants.types import TaskName, WorkerId
from workers.types import ReplyCode

FOR_OTHERS_MS = 2.0
"""For so long one who has to leave the room to others is refused without another look."""
LAG_PART = 0.1
"""A gateway that takes this part of a query's time to come to it in a turn of its event loop, while
queries are refused, is behind: it refuses what was refused a moment ago without another look, or
else it would fall behind further, until all that it reads is too late."""
FOR_WANT_OF_TIME = frozenset({RefusalCode.OVERLOADED, RefusalCode.DEADLINE_EXCEEDED})

LainMs = Callable[[], float]
"""For how long a query's bytes had lain there before they were seen, in ms; costs a system call."""


def known_to_be_new() -> float:
    """Of bytes that had not lain anywhere, or for a time that is counted already."""
    return 0.0


class Asking(NamedTuple):
    """Who asks: where the answer goes, and what is known of him."""

    respond: Respond
    given_id: bytes | None = None
    """The caller's ``X-Request-Id``."""
    told_ms: float = -inf
    """When he was told to come back."""
    takes: bytes = b""
    """The coding in which the answer may be compressed."""
    client: Client = ANYBODY
    unseen: bool = False
    """Whether it could not be seen yet, under pressure, if the query would be refused; ..."""
    outline: Outline | None = None
    """... and by what others that ask for the same are known then."""


class _Expected(NamedTuple):
    """What a query would be told."""

    error: ModellessError
    workers: tuple[WorkerId, ...]
    """The workers that would refuse the query."""
    until_ms: float
    """For so long they would, ..."""
    before_ms: float
    """... if it came before this."""
    asked: tuple[Choice, ...] = ()
    """What was chosen at each of them, where it is for what they would say, ..."""
    why: str = ""
    """... and what the last of them would."""


class _Look(NamedTuple):
    """Where a query would go, were workers to say what they have just said to others."""

    found: Choice | Refusal
    """What was chosen last; a choice that is ``taken``, or that no further one follows."""
    taken: bool = False
    """The worker may take it."""
    for_others: bool = False
    """The query has to leave the room to others."""
    asked: tuple[Choice, ...] = ()
    """What was chosen at workers that would refuse it, ..."""
    why: str = ""
    """... and what the last of them would say, ..."""
    until_ms: float = inf
    """... for so long, ..."""
    before_ms: float = inf
    """... if it came before this."""

    @property
    def refused(self) -> tuple[WorkerId, ...]:
        """The workers that would refuse it."""
        return tuple([each.worker.id for each in self.asked])

    @property
    def short(self) -> bool:
        """Whether more room would have helped."""
        found = self.found
        return isinstance(found, Choice) or (
            found.code is RefusalCode.OVERLOADED and not found.shed
        )


class EarlyRefusals(QueryContext):
    """Answers queries that would be refused, by as little of them as says so."""

    def refuse_at_once(
        self,
        outline: Outline | None,
        respond: Respond,
        received_ms: float,
        told_ms: float,
        client: Client,
        lain_ms: LainMs = known_to_be_new,
    ) -> bool:
        """Answer a query that asks for what was refused a moment ago, if it still would be.

        Args:
            lain_ms: asked once, unless it is refused whenever it came.

        Returns:
            Whether it was answered; else it has to be looked at, or its answer be held.
        """
        outline = asked_by(client, outline)
        if outline is None or (found := self.repeated.find(outline)) is None:
            return False
        now_ms = self.clock_ms()
        latency_ms = found.query.latency_ms
        wording = self.repeated.again(found, received_ms, now_ms)
        if wording is None:
            if now_ms - received_ms >= LAG_PART * latency_ms:
                wording = found.full if now_ms < found.holds.until_ms + latency_ms else None
            elif not self.repeated.is_outdated(found):
                came_ms = received_ms - lain_ms()
                wording = self.repeated.again(found, came_ms, now_ms)
                if wording is None:
                    wording = self._still(outline, found, came_ms, now_ms)
        due_ms = received_ms + latency_ms
        if wording is None or self._held_until_ms(wording, due_ms, told_ms, now_ms):
            return False
        respond = self.enter(client, respond)
        self._count_again(found, wording, now_ms)
        self.refuse(wording, respond, found.query.task, now_ms=now_ms)
        return True

    def turn_away_by_outline(
        self,
        outline: Outline | None,
        skim: Callable[[float], Query | None],
        asking: Asking,
        received_ms: float,
        draw: int,
        lain_ms: LainMs,
    ) -> tuple[bool | None, float]:
        """Answer a query that would be refused for want of time now, before its body is parsed.

        Args:
            outline: what it asks for, if the body shows that plainly.
            skim: finds what it asks for, given when it was received, where nobody was refused the
                same a moment ago.
            lain_ms: asked once, unless it is refused whenever it came.

        Returns:
            Whether it was answered, ``None`` if what it asks for could not be seen; and when it was
            received, with ``lain_ms`` unless it was refused whenever that was.
        """
        respond, given_id, told_ms, client = (
            asking.respond,
            asking.given_id,
            asking.told_ms,
            asking.client,
        )
        told, received_ms = self._refused_again(
            outline, received_ms, draw, respond, given_id, told_ms, lain_ms
        )
        if told is None:
            asked = skim(received_ms)
            if asked is not None:
                asked = asked._replace(client=client)
                told = self.turn_away(asked, respond, given_id, told_ms, outline)
        return told, received_ms

    def turn_away_by_headers(
        self,
        task: str,
        variant: str | None,
        slo: bytes | None,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None,
        told_ms: float,
        client: Client = ANYBODY,
    ) -> bool:
        """Answer a query whose body is still to come, if it would be refused for want of time now.

        Args:
            task: what it asks for, by its headers or path; ``variant`` and ``slo``, which is JSON,
                as well, where those say it.

        Returns:
            Whether it was answered, or will be: then its body is not wanted.
        """
        if not self.under_pressure():
            return False
        draw = getrandbits(32)
        outline = asked_by(client, outline_of_headers(task, variant, slo))
        respond = self.enter(client, respond)
        try:
            told, _ = self._refused_again(
                outline, received_ms, draw, respond, given_id, told_ms, known_to_be_new
            )
            if told is not None:
                return told
            if variant is not None:
                variant = self.variant_of(TaskName(task), variant)
            asked = asked_by_headers(task, variant, slo, self.tasks, received_ms, draw)
            if asked is None:
                return False
            asked = asked._replace(client=client)
            return self.turn_away(asked, respond, given_id, told_ms, outline)
        except ModellessError:
            return False  # what is wrong is found when it is read as a whole

    def turn_away(
        self,
        query: Query,
        respond: Respond,
        given_id: bytes | None = None,
        told_ms: float = -inf,
        outline: Outline | None = None,
    ) -> bool:
        """Answer a query that would be refused for want of time now; return whether it was.

        The refusal is the one that it would get after its body was read. Who has come back sooner
        than told gets it when that time has come, but no later than an answer: those who ask again
        at once do not take the time of those who wait. With the same ``outline`` others are refused
        for a moment.
        """
        if self.waiting is not None or query.task in self.sharing:
            return False
        now_ms = self.clock_ms()
        expected = self._expected_error(query, now_ms)
        if expected is None:
            self.looked_in_vain()
            return False
        if outline is not None:
            workers = expected.workers
            among = self.snapshot_for(query)
            before_ms = min(expected.before_ms, room_at_ms(among, query, workers))
            asked = expected.asked
            if asked and not is_only_choice(among, query, workers):
                asked = ()
            holds = Holds(expected.until_ms, before_ms, workers, asked, expected.why)
            self.repeated.add(outline, query, expected.error, holds, now_ms)
        self.demand.count(query)
        worded = self.repeated.wording(expected.error)
        answer = partial(self.refuse, worded, respond, query.task, given_id)
        due_ms = query.received_ms + query.latency_ms
        self._give(answer, self._held_until_ms(worded, due_ms, told_ms, now_ms))
        return True

    def _refused_again(
        self,
        outline: Outline | None,
        received_ms: float,
        draw: int,
        respond: Respond,
        given_id: bytes | None,
        told_ms: float,
        lain_ms: LainMs,
    ) -> tuple[bool | None, float]:
        """Answer a query that asks for what was refused a moment ago, if it still would be.

        Returns:
            As ``turn_away_by_outline``; ``None`` if nothing is known of what it asks for.
        """
        if outline is None or (found := self.repeated.find(outline)) is None:
            return None, received_ms - lain_ms()
        now_ms = self.clock_ms()
        wording = self.repeated.again(found, received_ms, now_ms)
        if wording is None:
            received_ms -= lain_ms()
            wording = self.repeated.again(found, received_ms, now_ms)
            if wording is None:
                wording = self._still(outline, found, received_ms, now_ms)
        if wording is None and now_ms >= self._short_until_ms:
            self.looked_in_vain()  # others were late here, and nobody was refused
            return False, received_ms
        if wording is None:
            query = found.query._replace(received_ms=received_ms, draw=draw)
            return self.turn_away(query, respond, given_id, told_ms, outline), received_ms
        query = found.query
        held_ms = self._held_until_ms(wording, received_ms + query.latency_ms, told_ms, now_ms)
        self._count_again(found, wording, now_ms)
        answer = partial(self.refuse, wording, respond, query.task, given_id)
        self._give(answer, held_ms)
        return True, received_ms

    def _still(
        self, outline: Outline, found: Repeated, received_ms: float, now_ms: float
    ) -> Wording | None:
        """A refusal of a moment ago that may not hold any more, if its workers would say it again.

        That takes a tenth of a whole look.
        """
        if not self.repeated.may_hold(found, now_ms):
            return None
        query, holds = found.query._replace(received_ms=received_ms), found.holds
        standing = self.standing(query, now_ms)
        for choice in holds.asked:
            if self.lately.is_before(standing, choice.worker.id, now_ms):
                return None  # others come first, which reads otherwise
        said = self.refusals.expected_of_all(holds.asked, query, now_ms, standing)
        if said is None or said.why != holds.why:
            return None
        self.lately.add(query.task, standing, now_ms)
        self.repeated.renew(outline, found, said.until_ms, said.before_ms)
        return found.full

    def _count_again(self, found: Repeated, wording: Wording, now_ms: float) -> None:
        """Count a query that is refused as the one before was."""
        self.demand.count(found.query)
        if wording.waits:
            self._narrow(found.query, found.holds.workers, now_ms)

    def _held_until_ms(
        self, wording: Wording, due_ms: float, told_ms: float, now_ms: float
    ) -> float:
        """Until when a refusal is held of a query that is due then; 0 if it is given at once."""
        if not wording.waits or told_ms <= now_ms:
            return 0.0
        held_ms = min(told_ms, due_ms)
        holds = held_ms > now_ms and self.held_answers.slows_down(held_ms, now_ms)
        return held_ms if holds else 0.0

    def _give(self, answer: Callable[[], None], held_ms: float) -> None:
        """Give an answer, at ``held_ms`` unless that is 0."""
        if held_ms:
            self.held_answers.hold(held_ms, answer)
        else:
            answer()

    def _expected_error(self, query: Query, now_ms: float) -> "_Expected | None":
        """What a query would be told, were workers to say what they have just said to others."""
        look = self._look(query, now_ms)
        found, refused = look.found, look.refused
        if look.taken:
            return None
        if look.for_others:
            error: ModellessError = Overloaded(OTHERS_FIRST)
            return _Expected(error, refused, now_ms + FOR_OTHERS_MS, look.before_ms)
        if isinstance(found, Refusal) and found.code not in FOR_WANT_OF_TIME:
            return None
        self._narrow(query, refused, now_ms)
        for worker in refused:
            self.congestion.stays_behind(worker, query)
        if refused or look.short:  # else no room would have helped
            self.lately.add(query.task, self.standing(query, now_ms), now_ms)
        if refused and look.short:
            error = worker_error(ReplyCode.OVERLOADED, look.why, query, None)
            return _Expected(error, refused, look.until_ms, look.before_ms, look.asked, look.why)
        assert isinstance(found, Refusal)
        return _Expected(refusal_error(found), refused, look.until_ms, look.before_ms)

    def foreseen(self, query: Query, now_ms: float) -> Choice | Refusal:
        """What becomes of a query that comes now, to be explained: nothing counts by it."""
        look = self._look(query, now_ms)
        if look.for_others:
            return Refusal(code=RefusalCode.OVERLOADED, message=OTHERS_FIRST)
        if look.refused and look.short and not look.taken:
            error = worker_error(ReplyCode.OVERLOADED, look.why, query, None)
            return Refusal(code=RefusalCode.OVERLOADED, message=error.message)
        return look.found

    def _look(self, query: Query, now_ms: float) -> _Look:
        """Where a query would go, as far as can be told without asking a worker."""
        look = _Look(self.choose(query, now_ms))
        standing = self.standing(query, now_ms)
        while isinstance(look.found, Choice):
            found = self.leaving_room(query, look.found, now_ms)
            if found is None:
                return look._replace(for_others=True)
            said, worker = None, found.worker.id
            if not found.cold and not query.best_effort:
                busy_ms = found.worker.busy_until_ms
                said = self.refusals.expected(
                    worker, found.candidate, query, now_ms, busy_ms, standing
                )
            if said is None:
                return look._replace(found=found, taken=True)
            asked = (*look.asked, found)
            look = _Look(
                found, asked=asked, why=said.why,
                until_ms=min(look.until_ms, said.until_ms),
                before_ms=min(look.before_ms, said.before_ms),
            )  # fmt: skip
            if len(asked) == TRIES:
                break
            query = query._replace(avoid=worker)
            look = look._replace(found=self.choose(query, now_ms))
        return look

    def _narrow(self, query: Query, workers: Sequence[WorkerId], now_ms: float) -> None:
        """Narrow the window as if these workers had refused a query."""
        for number, worker in enumerate(workers, 1):
            self.refused(query, worker, now_ms, twice=number == TRIES)


def asked_by(client: Client, outline: Outline | None) -> Outline | None:
    """The outline of what one client asks: what others were refused says nothing of it."""
    if outline is None or client is ANYBODY:
        return outline
    return (*outline[:3], client.name)
