"""How many gateways run: another one while those there are have too much to do.

A gateway is one event loop on one core. Where queries take little to compute it is what ends first,
and the cores beside it are idle.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, exp, inf
from typing import Any, Protocol

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.sightings import of_cluster
from controlplane.controller.one_task import OneTask
from controlplane.settings import Settings
from variants.container import usable_cores

MOST = 8
"""Beyond that it is not the event loops that end first."""
FULL_CORES = 2
"""So many cores one gateway and a worker fill: a second event loop would wait for them (decision
2)."""
BUSY = 0.5
"""Share of its time that an event loop computes, from which on a burst waits for many
milliseconds: the loop shares the cores, and does one thing at a time."""
FADE_S = 5.0
"""By this time what was reported has faded to a third: a new gateway takes two seconds of processor
to start, and one burst is no reason for it."""
IDLE = 0.3
"""All would do with one less if those that stay were no busier than this."""
IDLE_S = 600.0
"""How long that must hold: who is connected to the one that goes connects anew."""
SETTLED_S = 12.0
"""By then reports of gateways that were gone before have expired."""
REFUSED = 0.05
"""From this share of refusals on it is the workers that are full; gateways that refuse must not
take more of the cores from them."""
REST_S = 15.0
"""How long nothing more is decided after a change: it must have had an effect. A new gateway needs
some seconds to start, and has its part of the connections some three seconds later."""
_FULL = "OVERLOADED"


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """A number of gateways, and why that many."""

    count: int
    why: str


@dataclass(slots=True)
class _Counted:
    """Queries that a gateway had answered and refused by its last report."""

    asked: int = 0
    refused: int = 0


def bounds(settings: Settings) -> tuple[int, int]:
    """The least and the most gateways: one number where the settings name it, or each has a node of
    its own."""
    least = settings.gateway_count
    if settings.gateways or (settings.ray_address and settings.gateway_nodes != "head"):
        return least, least
    cores = usable_cores()
    return least, max(least, min(MOST, cores) if cores > FULL_CORES else 1)


class GatewayScaling:
    """Follows the reports of all gateways. Times are the caller's, in seconds."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._counted: dict[str, _Counted] = {}
        self._target: int | None = None
        """What Ray Serve was last told; until it is known how many a control loop before this one
        had, None."""
        self._began_s: float | None = None
        self._seen: set[str] = set()
        """Gateways that have reported while that is not known."""
        self._refused = 0.0
        """Part of what was asked that full workers refused, by the last reports."""
        self._busy = 0.0
        """Of all event loops together, faded."""
        self._before = 0
        """How many ran before one more was started, while `modelless upgrade` replaces them."""
        self._excess_since_s = inf
        """When there were last no more than there may be."""
        self._looked_s: float | None = None
        self._idle_since_s: float | None = None
        self._rests_until_s = float("-inf")

    def look(
        self,
        reports: Mapping[str, Mapping[str, Any]],
        now_s: float,
        *,
        replacing: bool = False,
        frozen: bool = False,
    ) -> GatewayTarget | None:
        """What the number of gateways should be instead, or None.

        Args:
            replacing: one more is to run, while others are replaced.
            frozen: nothing else may change.
            reports: what each gateway wrote last: ``busy``, the share of its time that its event
                loop computed, and ``tasks`` with the numbers of queries met, missed and refused.
        """
        here = {id_: one for id_, one in reports.items() if not one.get("leaving")}
        self._see_refused(here)
        if replacing:
            return self._one_more(len(here), now_s)
        return (
            self._as_before_replacing(now_s)
            or self._without_excess(len(here), now_s)
            or self._by_use(here, now_s, frozen=frozen)
        )

    def not_told(self) -> None:
        """What was decided last could not be told to Ray Serve."""
        self._target = None

    def _one_more(self, count: int, now_s: float) -> GatewayTarget | None:
        """One more than ran before others were replaced."""
        if count and not self._before:
            # Not only what reports: one that starts, or is cut off, is none less.
            known = min(max(count, self._least), self._most)
            self._before = known if self._target is None else self._target
        if not self._before or self._target == self._before + 1:
            return None
        return self._change(self._before + 1, "one more while the others are replaced", now_s)

    def _as_before_replacing(self, now_s: float) -> GatewayTarget | None:
        """As many as ran before others were replaced, until that could be told."""
        if self._before and self._target != self._before:
            return self._change(self._before, "the others have been replaced", now_s)
        self._before = 0
        return None

    def _without_excess(self, count: int, now_s: float) -> GatewayTarget | None:
        """No more than there may be: a control loop before this one had one more run, or settings
        allow fewer now."""
        if count <= self._most or self._excess_since_s == inf:
            self._excess_since_s = now_s
        elif now_s - self._excess_since_s >= SETTLED_S and now_s >= self._rests_until_s:
            return self._change(self._most, f"{count} are more than there may be", now_s)
        return None

    def _by_use(
        self, here: Mapping[str, Mapping[str, Any]], now_s: float, *, frozen: bool
    ) -> GatewayTarget | None:
        """More where they have too much to do, one less where they have too little."""
        count = len(here)
        if self._least == self._most or count < self._known(here, now_s):
            return None  # some start, or cannot, or are cut off from the live state
        busy = self._faded(sum(float(one.get("busy", 0.0)) for one in here.values()), now_s)
        if count <= self._least or busy > IDLE * (count - 1):
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        if frozen or now_s < self._rests_until_s:
            return None
        if count < self._most and busy >= BUSY * count and self._refused < REFUSED:
            why = f"the event loops of {count} computed for {100 * busy / count:.0f} % of the time"
            # Where all are full, that may be twice as many: each start takes seconds.
            needed = ceil(round(busy / BUSY, 6))
            return self._change(min(self._most, max(count + 1, needed)), why, now_s)
        if self._idle_since_s is not None and now_s - self._idle_since_s >= IDLE_S:
            idle = f"{count} had too little to do: {100 * busy:.0f} % in all"
            why = f"for {IDLE_S / 60:.0f} minutes {idle}"
            return self._change(count - 1, why, now_s)
        return None

    def _known(self, here: Collection[str], now_s: float) -> float:
        """The target; it is what is there after a while, where this control loop set none.

        A gateway that comes meanwhile may take the place of one whose last report still counts.
        """
        if self._target is None:
            if self._began_s is None or not self._seen.issuperset(here):
                self._began_s = now_s
                self._seen.update(here)
            if now_s - self._began_s < SETTLED_S:
                return inf
            self._target = max(self._least, len(here))
        return self._target

    def _faded(self, busy: float, now_s: float) -> float:
        if self._looked_s is not None:
            kept = exp((self._looked_s - now_s) / FADE_S)
            self._busy = kept * self._busy + (1.0 - kept) * busy
        self._looked_s = now_s
        return self._busy

    def _change(self, count: int, why: str, now_s: float) -> GatewayTarget:
        self._target = count
        self._idle_since_s = None
        self._rests_until_s = now_s + REST_S
        return GatewayTarget(count, why)

    def _see_refused(self, here: Mapping[str, Mapping[str, Any]]) -> None:
        """Find out which part of what was asked lately was refused by full workers."""
        asked = refused = 0
        counted: dict[str, _Counted] = {}
        for id_, report in here.items():
            now = counted[id_] = _Counted()
            for task in report.get("tasks", {}).values():
                errors: Mapping[str, int] = task["errors"]
                answered = task["met"] + task["missed"] + task.get("infeasible_answered", 0)
                now.asked += answered + sum(errors.values())
                now.refused += errors.get(_FULL, 0)
            before = self._counted.get(id_, now)
            if now.asked < before.asked or now.refused < before.refused:
                continue  # it counts anew, as where a task was removed: nothing can be said now
            asked += now.asked - before.asked
            refused += now.refused - before.refused
        self._counted = counted
        if asked:  # else no report is new
            self._refused = refused / asked


class Lever(Protocol):
    """What starts and stops gateways."""

    async def scale_gateways(self, count: int) -> None: ...


class GatewayScaler:
    """Has as many gateways run as it takes to read and answer what is asked.

    Ray Serve is told beside the loop's turns: it may take seconds to answer.
    """

    def __init__(
        self, lever: Lever, journal: Journal, settings: Settings, cluster: str = ""
    ) -> None:
        """
        Args:
            cluster: whose gateways these are, as they report it; those of another Ray cluster of
                the installation are not ours to count, nor to stop.
        """
        self._cluster = cluster
        self._lever = lever
        self._journal = journal
        self._scaling = GatewayScaling(*bounds(settings))
        self._telling = OneTask()

    def follow(
        self,
        reports: Mapping[str, Mapping[str, Any]],
        now_s: float,
        *,
        replacing: bool = False,
        frozen: bool = False,
    ) -> None:
        """Decide by what gateways report, and begin to tell Ray Serve, unless it is being told
        something already; a failure is tried again later."""
        if self._telling.is_under_way:
            return
        own = of_cluster(reports, self._cluster)
        target = self._scaling.look(own, now_s, replacing=replacing, frozen=frozen)
        if target is not None:
            self._telling.begin(self._tell(target))

    async def close(self) -> None:
        """Give up what is being told."""
        await self._telling.give_up()

    async def _tell(self, target: GatewayTarget) -> None:
        try:
            await self._lever.scale_gateways(target.count)
        except Exception as error:
            self._scaling.not_told()
            self._journal.failed("scaling of gateways", error)
            return
        self._journal.over("scaling of gateways")
        message = f"{target.count} {'is' if target.count == 1 else 'are'} to run: {target.why}"
        self._journal.tell("gateways_scaled", "gateways", message)
