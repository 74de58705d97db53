"""Room: which variants leave this worker when a query asks for one that is not loaded, and when.

The decision is ``planner.eviction``'s; this brings it what the worker knows, and keeps the clock
that the rule ``gdsf`` needs.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

from planner.eviction.churn import Churn
from planner.eviction.displacement import Rung, ladder
from planner.eviction.expected import expected_qps
from planner.eviction.rules import Resident, loss_s
from planner.eviction.turns import AHEAD_S, turn_of
from planner.eviction.victims import (
    MIN_RESIDENCY_S,
    protected_until_s,
    room_for,
    turn_gain,
    victims,
    worth,
)
from variants.errors import Overloaded
from variants.figures import apart, fixed
from variants.types import ReplicaState
from workers.execution.replicas import Replica
from workers.execution.usage import Usage
from workers.types import LoadSpec, variant_id


class Demanded(NamedTuple):
    """Why a variant is loaded out of turn: queries ask for it."""

    waiting: bool
    """A query waits for this load; else it is for queries to come."""
    patience_s: float = 0.0
    """How much later than at once the load may begin, for the query to be answered in time."""
    need: str = ""
    """What the query asks for, to be told."""
    evicts: bool = True
    """What is worth less may leave for it; else it takes free memory only."""


class Wish(NamedTuple):
    """A load that is to begin."""

    spec: LoadSpec
    demanded: Demanded | None
    until_s: float
    """When it has to begin for the query that waits for it."""


class Look:
    """What a worker holds at one moment. What eviction makes of it is worked out once, for all
    loads that want room at that moment."""

    def __init__(
        self, room: "Room", replicas: Iterable[Replica], now_s: float, busy_s: float,
        backlog_s: float,
    ) -> None:  # fmt: skip
        """Look at all that is listed.

        Args:
            busy_s: how long the loads that were begun still take.
            backlog_s: predicted time until all admitted work is done.
        """
        self._room = room
        self.now_s, self.busy_s, self.backlog_s = now_s, busy_s, backlog_s
        self.replicas = [replica for replica in replicas if replica.runtime]
        """All that hold memory here."""
        self._reserved_mib = sum(replica.spec.memory_mib for replica in self.replicas)

    def short_mib(self, spec: LoadSpec) -> float:
        """How much memory is short for a load; 0 or less where there is room."""
        return self._reserved_mib + spec.memory_mib - self._room.memory_mib

    @property
    def free_mib(self) -> float:
        return self._room.memory_mib - self._reserved_mib

    @property
    def leaving(self) -> list[Replica]:
        """What is unloaded now."""
        return [r for r in self.replicas if r.state is ReplicaState.UNLOADING]

    @cached_property
    def residents(self) -> list[Resident[int]]:
        """As the rule counts them."""
        return self._room.ruled(self.replicas, self.now_s)

    @cached_property
    def drained(self) -> list[Resident[int]]:
        """The same, where what has queries in flight may leave once they are answered. A replica
        whose first queries are still on their way here stays for them."""
        return [
            resident._replace(in_use=False)
            if resident.in_use and _is_served(replica, self.now_s)
            else resident
            for replica, resident in zip(self.replicas, self.residents, strict=True)
        ]

    @cached_property
    def changes_s(self) -> float | None:
        """When something may leave that stays now, as far as it is known; None where nothing will.

        That is what is being loaded, or closed because it failed, of which it is not known, or was
        loaded a moment ago and has to serve its queries first.
        """
        changes, soonest_s = False, inf
        for replica, resident in zip(self.replicas, self.residents, strict=True):
            if replica.state is not ReplicaState.READY:
                changes = True
            else:
                protected_s = protected_until_s(resident, self._room.min_residency_s)
                later_s = [at for at in (replica.expected_until_s, protected_s) if at > self.now_s]
                soonest_s = min(soonest_s, *later_s, inf)
        return soonest_s if changes or soonest_s < inf else None

    @property
    def again_s(self) -> float:
        """In how many seconds a load may begin that could not now, unless something happens
        before."""
        turn_s = self.busy_s - AHEAD_S if self.busy_s > AHEAD_S else inf
        return min(turn_s, inf if self.changes_s is None else self.changes_s - self.now_s)


class Room:
    """The memory of one worker as eviction sees it.

    Args:
        rule: a key of ``planner.eviction.registry.RULES``.
        min_residency_s: how long at most what queries asked for is protected after its load.
    """

    def __init__(
        self,
        usage: Usage,
        memory_mib: float,
        rule: str = "modelless",
        min_residency_s: float = MIN_RESIDENCY_S,
    ) -> None:
        self.memory_mib = memory_mib
        self._usage = usage
        self._rule = rule
        self.min_residency_s = min_residency_s
        self._inflation = 0.0
        self._churn = Churn(memory_mib)

    @property
    def counts_uses(self) -> bool:
        """Whether the rule has to be told of each use: only ``gdsf`` has a clock of its own."""
        return self._rule == "gdsf"

    def used(self, replica: Replica) -> None:
        """A replica was loaded or used: under ``gdsf`` it counts from the present clock on."""
        replica.inflation = self._inflation

    def decide(self, wish: Wish, look: Look) -> list[Replica] | None:
        """The replicas that leave for a load for which memory is short; the caller evicts them.

        Returns:
            None when there may be room soon: before ``until_s`` where a query waits, else when
            others have been loaded.

        Raises:
            Overloaded: there is no room, and no more of it to come.
        """
        spec, demanded = wish.spec, wish.demanded
        evicts = demanded is not None and demanded.evicts
        if demanded is not None and evicts:
            left_s = wish.until_s - look.now_s
            turn = turn_of(look.busy_s, waiting=demanded.waiting, patience_s=left_s)
            if turn.soon:
                return None
            if not turn.now:
                raise Overloaded(
                    f"{spec.task}/{spec.variant} has no room here before others are loaded, which "
                    f"takes {look.busy_s:,.1f} s"
                )
            patience_s = demanded.patience_s
            drains = turn.waits and look.backlog_s <= patience_s
            for drain in (False, True) if drains else (False,):
                found = self.leaving(
                    spec, look, waiting=turn.waits, patience_s=patience_s, drain=drain
                )
                if found is not None:
                    return found
            if turn.waits and left_s > 0.0 and look.changes_s is not None:
                return None
        raise Overloaded(self.refusal(spec, look.free_mib, look.replicas, asked=evicts))

    def by_turn(self, wishes: Sequence[Wish], look: Look) -> Sequence[Wish]:
        """Loads that wait for room, in the order in which they get it: what a query waits for, as
        it came, and then, under our own rule, what brings most by the turn that has come."""
        to_come = [wish for wish in wishes if not (wish.demanded and wish.demanded.waiting)]
        if self._rule != "modelless" or look.busy_s >= AHEAD_S or len(to_come) < 2:
            return wishes

        def gain(wish: Wish) -> float:
            newcomer = self._newcomer(wish.spec, look.now_s)
            return turn_gain(newcomer, look.residents, look.short_mib(wish.spec))

        waited_for = [wish for wish in wishes if wish.demanded and wish.demanded.waiting]
        return [*waited_for, *sorted(to_come, key=gain, reverse=True)]

    def leaving(
        self,
        spec: LoadSpec,
        look: Look,
        *,
        waiting: bool,
        patience_s: float = 0.0,
        drain: bool = False,
    ) -> list[Replica] | None:
        """The replicas that leave so that there is room for ``spec``.

        Args:
            waiting: a query waits for the load.
            patience_s: how much later than when it came the load may begin, for that query.
            drain: what has queries in flight may leave as well, once they are answered.

        Returns:
            None when what is here is worth more, or in use.
        """
        if spec.memory_mib > self.memory_mib:
            return None
        need_mib, now_s = look.short_mib(spec), look.now_s
        residents = look.drained if drain else look.residents
        if self._rule == "modelless":
            newcomer = self._newcomer(spec, now_s)
            found = room_for(
                newcomer, residents, need_mib, now_s,
                waiting=waiting, patience_s=patience_s, min_residency_s=self.min_residency_s,
            )  # fmt: skip
        else:
            found = victims(residents, need_mib, now_s, self._rule)
        if found is None:
            return None
        by_variant = {replica.variant: replica for replica in look.replicas}
        return [by_variant[key] for key in found]

    def evicted(self, gone: Sequence[Replica], look: Look) -> None:
        """These leave for a load: the clock of ``gdsf`` goes on, and the churn is counted."""
        keys = {replica.variant for replica in gone}
        leave = [each for each in look.residents if each.key in keys]
        if self.counts_uses:
            values = [worth(each, self._rule) for each in leave]
            self._inflation = max(self._inflation, *values, 0.0)
        if leave:
            self._churn.evicted(sum(each.memory_mib for each in leave), look.now_s)

    def ladder(self, replicas: Sequence[Replica], now_s: float) -> tuple[Rung, ...]:
        """What may leave, in the order in which it would, and what that would cost."""
        residents = self.ruled(replicas, now_s)
        if self._rule == "modelless":
            return ladder(residents, now_s, min_residency_s=self.min_residency_s)
        expected = self.residents(replicas, now_s)
        losses_s = {resident.key: loss_s(resident) for resident in expected}
        return ladder(residents, now_s, self._rule, losses_s=losses_s, min_residency_s=0.0)

    def churn_per_s(self, now_s: float) -> float:
        """The share of the memory that is evicted per second."""
        return self._churn.per_s(now_s)

    def refusal(
        self, spec: LoadSpec, free_mib: float, replicas: Iterable[Replica], *, asked: bool
    ) -> str:
        """Why there is no room for a load beside these, of which ``asked`` says whether queries ask
        for it."""
        needs, free = apart(spec.memory_mib, max(0.0, free_mib), 1, fixed)
        text = f"{spec.task}/{spec.variant} needs {needs} MiB, {free} MiB are free here"
        if asked and spec.memory_mib <= self.memory_mib:
            pinned = "pinned, " if any(replica.spec.pinned for replica in replicas) else ""
            text += f", and what is loaded is {pinned}in use or asked for more"
        return text

    def residents(self, replicas: Iterable[Replica], now_s: float) -> list[Resident[int]]:
        """What is here, with the rates to expect."""
        held = list(replicas)
        learned = self._usage.learned_qps([replica.variant for replica in held], now_s)
        share, pace = self._usage.urgency.share, self._usage.load_pace
        return [
            replica.resident(
                expected_qps(rate, replica.planned_qps), now_s, share(replica.variant), pace
            )
            for replica, rate in zip(held, learned, strict=True)
        ]

    def ruled(self, replicas: Iterable[Replica], now_s: float) -> list[Resident[int]]:
        """What is here, with the popularity that the rule counts."""
        if self._rule == "modelless":
            return self.residents(replicas, now_s)
        return [replica.resident(float(replica.uses), now_s) for replica in replicas]

    def _newcomer(self, spec: LoadSpec, now_s: float) -> Resident[int]:
        variant = variant_id(spec.task, spec.variant)
        (rate,) = self._usage.learned_qps((variant,), now_s)
        return Resident(
            key=variant,
            memory_mib=spec.memory_mib,
            load_s=self._usage.load_pace * spec.load_s,
            popularity=rate,
            last_used_s=now_s,
            in_use=False,
            loaded_s=now_s,
            urgent=self._usage.urgency.share(variant),
        )


def _is_served(replica: Replica, now_s: float) -> bool:
    """Whether it takes queries, and those that it was loaded for have come."""
    return replica.state is ReplicaState.READY and now_s >= replica.expected_until_s
