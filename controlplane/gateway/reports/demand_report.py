"""DemandReport: what a gateway tells the control loop, once a second, of what was asked."""

from collections.abc import Mapping
from time import monotonic, thread_time, time
from typing import Any

from controlplane.demand_counters import counter_name, parse_counter_name
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.counting.task_counters import GONE, TaskCounters
from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.reports.history_samples import HistorySamples
from controlplane.gateway.reports.recent_outcomes import Counted, RecentOutcomes
from controlplane.views.service_status import CONNECTIONS
from planner.forecasting.demand_estimator import Least
from variants.core_time import CoreMeter

TIGHT_S = 5.0
"""How long the tightest SLO of a class is reported, and up to twice as long: a report may be missed
by its readers, but what is seen for long is remembered there."""


GONE_S = 600.0
"""So long after a task or a variant has left the catalog its counters are still told: whoever reads
them has seen the last of them by then."""


class DemandReport:
    """Counters that grow from the start of the gateway; the control loop takes differences."""

    def __init__(self, gateway: str, path: QueryPath, known: Knowledge, cluster: str = "") -> None:
        """
        Args:
            cluster: the session of the Ray cluster on which the gateway runs, where it is known.
        """
        self._gateway = gateway
        self._cluster = {"cluster": cluster} if cluster else {}
        self._path = path
        self._looked: tuple[float, float] | None = None
        """Processor time of the event loop, in whose thread reports are made, and time when
        ``busy`` was last counted."""
        self._known = known
        self._demand: dict[str, int] = {}
        """Rows asked for, by counter."""
        self._tightest: Least[str] = Least(TIGHT_S)
        """The shortest latency SLO in ms, by counter."""
        self._catalog = known.counted
        """As it was when counters were last looked through."""
        self._gone_s: dict[str, float] = {}
        """Tasks that were counted and are in the catalog no more, and since when."""
        self._variants_gone_s: dict[tuple[str, str], float] = {}
        """Variants likewise, of tasks that are there."""
        self._began_s = monotonic()
        self._outcomes = RecentOutcomes(self._began_s)
        self._samples = HistorySamples(time())
        self.cores = CoreMeter()
        self.latest: Mapping[str, Any] = {"tasks": {}}
        """The report that was made last."""

    def make(self) -> Mapping[str, Any]:
        """Count what was asked since the last report, and return the report now.

        Returns:
            ``demand`` and ``tightest`` by counter (``controlplane.demand_counters``), ``at_s``,
            when they were read, on a clock of this gateway's, ``counted_s``, for how many seconds
            this gateway has counted, ``tasks`` with the numbers of queries
            met, missed and refused, ``lately``, the same of the last minute, how many
            ``seconds`` that is and, by error code, what was ``turned_away`` before its task was
            known, ``in_flight``, and ``busy``, the share of the time since the last
            report that the event loop computed; ``canaries``, what is counted of those with a
            share (``gateway.canaries.diversions``); ``feedback``, rows that clients have said to be
            right and wrong, by task and variant; ``feedback_by_class``, the same of each class, by
            its number, where the task's accuracy is by class (``TaskCounters``); ``cluster``, the
            Ray cluster that it runs on, where that is known; ``zone``, the gateway's own, and
            ``round_trips_ms`` to the workers of each zone; ``core_time``, how the time of its
            machine's cores was used lately (``variants.core_time``), or null; ``old_keys``, where
            somebody changes a key: by digest, the fields of ``OldKeyUse``.
        """
        tightest: dict[str, float] = {}
        for (task, latency_ms, accuracy, variant), rows in self._path.demand.take().items():
            if variant is not None and (task, variant) not in self._known.variants:
                continue  # clients may pin to any name
            steps = self._known.accuracies.get(task, ())
            name = counter_name(task, latency_ms, accuracy, steps, variant)
            self._demand[name] = self._demand.get(name, 0) + rows
            tightest[name] = min(latency_ms, tightest.get(name, latency_ms))
        now_s = monotonic()
        self._forget_gone(now_s)
        self._tightest.saw(now_s, tightest)
        self._path.asked.tell(self._path.clock_ms() / 1_000)
        counters = self._path.counters
        busy = counters.busy[self._gateway] = self._busy(now_s)
        counted, canaries = self._told(), self._path.canaries
        self.latest = {
            "demand": self._demand,
            "at_s": now_s,
            "tightest": self._tightest.items(),
            "counted_s": now_s - self._began_s,
            **_by_task(counted, *self._outcomes.grown(now_s, counted)),
            "in_flight": counters.in_flight,
            "busy": busy,
            "canaries": {} if canaries is None else canaries.counted(),
            "feedback": _feedback(counters.tasks),
            "feedback_by_class": feedback_by_class(counters.tasks),
            **self._cluster,
            "zone": self._known.zone,
            "round_trips_ms": self._known.workers.round_trips_ms(),
            "core_time": self.cores.look(),
            **_old_keys(counters),
        }
        return self.latest

    def _forget_gone(self, now_s: float) -> None:
        """Forget what was counted of tasks, variants and floors that are in the catalog no more.

        The control loop takes differences, and knows that a counter which comes anew begins at 0.
        """
        known = self._known
        if known.counted is not self._catalog:
            self._catalog = known.counted
            self._demand = {name: rows for name, rows in self._demand.items() if self._counts(name)}
        counters = self._path.counters
        gone = [name for name in counters.tasks if name and name not in known.tasks]
        if gone or self._gone_s:
            self._gone_s = {name: self._gone_s.get(name, now_s) for name in gone}
            late = {name for name, since_s in self._gone_s.items() if now_s - since_s > GONE_S}
            counters.forget_tasks(counters.tasks.keys() - late)
        self._forget_variants(now_s)

    def _forget_variants(self, now_s: float) -> None:
        """Tell no more apart what variants have counted that were removed a while ago."""
        known, tasks = self._known, self._path.counters.tasks
        before, self._variants_gone_s = self._variants_gone_s, {}
        for name, task in tasks.items():
            if name in known.tasks:
                for variant in task.variants:
                    key = (name, variant)
                    if key not in known.variants and variant != GONE:
                        self._variants_gone_s[key] = before.get(key, now_s)
        late = {key for key, at_s in self._variants_gone_s.items() if now_s - at_s > GONE_S}
        for name in {name for name, _ in late}:
            own = tasks[name]
            own.forget_variants([one for one in own.variants if (name, one) not in late])
        for key in late:
            del self._variants_gone_s[key]

    def _counts(self, name: str) -> bool:
        """Whether a counter may still grow."""
        asked = parse_counter_name(name)
        if asked is None:
            return False
        task, _, floor, variant = asked
        if variant is not None:
            return (task, variant) in self._known.variants
        steps = self._known.accuracies.get(task, ())
        return task in self._known.tasks and (floor is None or floor == 1.0 or floor in steps)

    def outcomes(self) -> Mapping[str, Any]:
        """``counted_s``, ``tasks`` and ``lately`` as of now; nothing counts as reported by that."""
        counted, now_s = self._told(), monotonic()
        told = _by_task(counted, *self._outcomes.growth(now_s, counted))
        return {"counted_s": now_s - self._began_s, **told}

    def sample(self, *, last: bool = False) -> Mapping[str, Any] | None:
        """How the last ten seconds went, once they are over, or at the end (``HistorySamples``)."""
        wall_s = time()
        if not last and not self._samples.is_due(wall_s):
            return None
        accuracies: dict[tuple[str, str], float] = {
            v.key: v.accuracy for v in self._known.counted.variants
        }
        counters = self._path.counters.tasks
        return self._samples.take(
            wall_s, self._counted(), counters, accuracies, asked=self._demand, last=last
        )

    def _counted(self) -> dict[str, Counted]:
        """By task; under the empty name what was refused before its task was known."""
        return {
            name: {
                "met": sum(variant.met for variant in task.variants.values()),
                "missed": sum(variant.missed for variant in task.variants.values())
                - task.infeasible_answered,
                "infeasible_answered": task.infeasible_answered,
                "errors": task.errors_by_fault(),
                "gave_up_ms": task.gave_up_ms,
                "gave_up_of_ms": task.gave_up_of_ms,
            }
            for name, task in self._path.counters.tasks.items()
        }

    def _told(self) -> dict[str, Counted]:
        """The same, with the connections that were one too many."""
        found = self._counted()
        if refused := sum(self._path.counters.connections.refusals.values()):
            unread = found.get("", {"met": 0, "missed": 0, "errors": {}})
            found[""] = {**unread, "errors": {**unread["errors"], CONNECTIONS: refused}}
        return found

    def _busy(self, now_s: float) -> float:
        used_s, before = thread_time(), self._looked
        self._looked = used_s, now_s
        if before is None or now_s <= before[1]:
            return 0.0
        return round((used_s - before[0]) / (now_s - before[1]), 3)


def _old_keys(counters: Counters) -> dict[str, Any]:
    """How keys and tokens are used that others have come beside; nothing where none has."""
    of_clients = (client.old_keys for client in counters.clients.values())
    uses = {
        digest: list(use)
        for keys in (counters.old_tokens, *of_clients)
        for digest, use in keys.uses.items()
    }
    return {"old_keys": uses} if uses else {}


def _feedback(tasks: Mapping[str, TaskCounters]) -> dict[str, dict[str, list[int]]]:
    """What clients have said, of the variants of which they have."""
    return {
        name: said
        for name, task in tasks.items()
        if (
            said := {
                variant: [of.right, of.wrong]
                for variant, of in task.variants.items()
                if of.right or of.wrong
            }
        )
    }


def feedback_by_class(tasks: Mapping[str, TaskCounters]) -> dict[str, dict[str, Any]]:
    """For each variant of which clients have said something lists of a class's number, and rows of
    it found, missed, and taken from others."""
    return {
        name: said
        for name, task in tasks.items()
        if (
            said := {
                variant: [[number, *counts] for number, counts in sorted(of.classes.items())]
                for variant, of in task.variants.items()
                if of.classes
            }
        )
    }


def _by_task(
    counted: Mapping[str, Counted], seconds: float, lately: Mapping[str, Counted]
) -> dict[str, Any]:
    """``tasks`` and ``lately`` of a report; what has no task stands apart in it."""
    away = lately[""]["errors"] if "" in lately else {}
    return {
        "tasks": {name: one for name, one in counted.items() if name},
        "lately": {
            "seconds": seconds,
            "tasks": {name: one for name, one in lately.items() if name},
            "turned_away": away,
        },
    }
