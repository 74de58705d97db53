"""Room: which variants leave this worker when a query asks for one that is not loaded.

The decision is ``planner.eviction.victims``'s; this brings it what the worker knows, and keeps the
clock that the rule ``gdsf`` needs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.eviction.churn import Churn
from planner.eviction.displacement import Rung, ladder
from planner.eviction.expected import expected_qps
from planner.eviction.rules import Resident, loss_s
from planner.eviction.victims import MIN_RESIDENCY_S, is_protected, room_for, victims, worth
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
        self._min_residency_s = min_residency_s
        self._inflation = 0.0
        self._churn = Churn(memory_mib)

    @property
    def counts_uses(self) -> bool:
        """Whether the rule has to be told of each use: only ``gdsf`` has a clock of its own."""
        return self._rule == "gdsf"

    def used(self, replica: Replica) -> None:
        """A replica was loaded or used: under ``gdsf`` it counts from the present clock on."""
        replica.inflation = self._inflation

    def leaving(
        self,
        spec: LoadSpec,
        need_mib: float,
        replicas: Sequence[Replica],
        now_s: float,
        *,
        waiting: bool,
        patience_s: float = 0.0,
        drain: bool = False,
    ) -> list[Replica] | None:
        """The replicas that leave so that ``need_mib`` come free for ``spec``; the caller evicts
        them.

        Args:
            replicas: all that hold memory here.
            waiting: a query waits for the load.
            patience_s: how much later than when it came the load may begin, for that query.
            drain: what has queries in flight may leave as well, once they are answered. A replica
                whose first queries are still on their way here stays for them.

        Returns:
            None when what is here is worth more, or in use.
        """
        if spec.memory_mib > self.memory_mib:
            return None
        residents = self._ruled(replicas, now_s)
        if drain:
            served = {
                r.variant
                for r in replicas
                if r.state is ReplicaState.READY and now_s >= r.expected_until_s
            }
            residents = [r._replace(in_use=r.in_use and r.key not in served) for r in residents]
        if self._rule == "modelless":
            newcomer = self._newcomer(spec, now_s)
            found = room_for(
                newcomer, residents, need_mib, now_s,
                waiting=waiting, patience_s=patience_s, min_residency_s=self._min_residency_s,
            )  # fmt: skip
        else:
            found = victims(residents, need_mib, now_s, self._rule)
        if found is None:
            return None
        if self.counts_uses:
            gone = [worth(each, self._rule) for each in residents if each.key in found]
            self._inflation = max(self._inflation, *gone, 0.0)
        if found:
            mib = [each.memory_mib for each in residents if each.key in found]
            self._churn.evicted(sum(mib), now_s)
        by_variant = {replica.variant: replica for replica in replicas}
        return [by_variant[key] for key in found]

    def ladder(self, replicas: Sequence[Replica], now_s: float) -> tuple[Rung, ...]:
        """What may leave, in the order in which it would, and what that would cost."""
        residents = self._ruled(replicas, now_s)
        if self._rule == "modelless":
            return ladder(residents, now_s, min_residency_s=self._min_residency_s)
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

    def may_change(self, replicas: Iterable[Replica], now_s: float) -> bool:
        """Whether something here may leave soon that stays now.

        That is what is being loaded, or closed because it failed, or was loaded a moment ago and
        has to serve its queries first.
        """
        return any(
            replica.state is not ReplicaState.READY
            or now_s < replica.expected_until_s
            or is_protected(replica.resident(0.0, now_s), now_s, self._min_residency_s)
            for replica in replicas
            if replica.runtime
        )

    def residents(self, replicas: Iterable[Replica], now_s: float) -> list[Resident[int]]:
        """What is here, with the rates to expect."""
        held = list(replicas)
        learned = self._usage.learned_qps([replica.variant for replica in held], now_s)
        share = self._usage.urgency.share
        return [
            replica.resident(expected_qps(rate, replica.planned_qps), now_s, share(replica.variant))
            for replica, rate in zip(held, learned, strict=True)
        ]

    def _ruled(self, replicas: Iterable[Replica], now_s: float) -> list[Resident[int]]:
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
            load_s=spec.load_s,
            popularity=rate,
            last_used_s=now_s,
            in_use=False,
            loaded_s=now_s,
            urgent=self._usage.urgency.share(variant),
        )
