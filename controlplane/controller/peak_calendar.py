"""The calendar of declared peaks, as the control loop goes by it.

Peaks are told by Unix time, while the loop's own clock only measures how long something takes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from controlplane.controller.events.journal import Journal
from controlplane.timestamps import spoken
from planner.forecasting.demand import usual_classes
from planner.forecasting.demand_estimator import recalled_demand
from planner.forecasting.memory import Memory, listed, number, part
from planner.forecasting.peaks import DeclaredDemand, Due, Occurrence, most, words
from planner.types import Demand
from planner.worker_starts import OrderTimes, lead_s, loading_s
from variants.types import CatalogSnapshot, CatalogState, DeviceKindName, Peak, TaskName
from workers.types import WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The demand to plan for, with what was declared."""

    expected: tuple[Demand, ...]
    envelope: tuple[Demand, ...]
    declared: tuple[str, ...] = ()
    """A sentence for each peak that is allowed for."""


class PeakCalendar:
    """Raises what is expected to what was declared, and tells when a peak comes and goes."""

    def __init__(self, journal: Journal, wall_s: Callable[[], float]) -> None:
        self.demand = DeclaredDemand()
        self.orders = OrderTimes()
        self._journal = journal
        self._wall_s = wall_s
        self._peaks: tuple[Peak, ...] = ()
        self._told: dict[Occurrence, Due] = {}
        self._state: CatalogState = (-1, "")
        self._usual: Mapping[TaskName, Demand] = {}
        self._loading_s = 0.0

    def know(self, peaks: tuple[Peak, ...], catalog: CatalogSnapshot) -> None:
        """Go by these peaks from now on."""
        self._peaks = peaks
        if peaks and catalog.state != self._state:
            self._usual, self._loading_s = usual_classes(catalog), loading_s(catalog)
            self._state = catalog.state

    def see(
        self,
        running: Mapping[DeviceKindName, int],
        workers: Iterable[WorkerStatus],
        now_s: float,
    ) -> None:
        """Take in how many workers are ordered and which are there, on the loop's clock."""
        there = Counter(DeviceKindName(w.device_kind) for w in workers if not w.draining)
        self.orders.see(running, there, now_s)

    def foresee(
        self,
        expected: tuple[Demand, ...],
        envelope: tuple[Demand, ...],
        starting: Iterable[DeviceKindName],
        tick_s: float,
    ) -> Foreseen:
        """What to plan for now, where a forecast and its envelope say the rest.

        Args:
            starting: device kinds of which workers would have to be started; none on a fleet of a
                fixed size.
        """
        at_s = self._wall_s()
        ahead_s = lead_s(self.orders.longest_s(starting), self._loading_s, tick_s)
        raised = self.demand.raised(expected, self._peaks, at_s, ahead_s, self._usual)
        self._tell(at_s)
        if not self.demand.due:
            return Foreseen(expected=expected, envelope=envelope)
        return Foreseen(
            expected=raised,
            envelope=most(envelope, raised),
            declared=tuple(_sentence(each) for each in self.demand.due),
        )

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "orders_s": {str(kind): took_s for kind, took_s in self.orders.usual_s.items()},
            "before": [
                [list(key), [asdict(demand) for demand in base]]
                for key, base in self.demand.remembered.items()
            ],
        }

    def recall(self, memory: Memory) -> None:
        """Go on from what another one remembered.

        Raises:
            ValueError: it is no memory of a calendar. What is known now is as it was.
        """
        orders = part(memory, "orders_s")
        usual_s = {DeviceKindName(kind): number(orders, kind) for kind in orders}
        before = {}
        for (id_, begin_s), base in listed(memory, "before"):
            before[int(id_), float(begin_s)] = [recalled_demand(values) for values in base]
        self.orders = OrderTimes(usual_s)
        self.demand.remember(before)

    def _tell(self, at_s: float) -> None:
        """Tell of peaks that are allowed for, have begun or are over since the last look."""
        now = {each.key: each for each in self.demand.due}
        for key, each in now.items():
            before = self._told.get(key)
            subject = f"peak {each.peak.id}"
            if before is None:
                ahead_s = each.begin_s - at_s
                when = "it has begun" if each.begun else f"it begins in {ahead_s:,.0f} s"
                self._journal.tell("peak_due", subject, f"{words(each.peak)}: {when}")
            elif each.begun and not before.begun:
                self._journal.tell("peak_begun", subject, words(each.peak))
        for key, each in self._told.items():
            if key not in now:
                how = "it is over" if at_s >= each.end_s else "it was taken back"
                self._journal.tell("peak_over", f"peak {each.peak.id}", how)
        self._told = now


def _sentence(each: Due) -> str:
    since = "since" if each.begun else "from"
    return (
        f"Peak {each.peak.id} is planned for: {words(each.peak)}, "
        f"{since} {spoken(each.begin_s)} until {spoken(each.end_s)}."
    )
