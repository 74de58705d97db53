"""FleetStatus: what is wanted against what is running, now, as numbers and one sentence.

The one place that compares them: the page, ``modelless status``, ``workers list``, ``plan get`` and
the control API behind them all show what is decided here. A plan's own sentences speak of the
moment it was made.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from variants.figures import counted
from variants.types import Plan, ReplicaState


class Replica(Protocol):
    """What is read of a variant on a worker."""

    @property
    def task(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def state(self) -> ReplicaState: ...


class Worker(Protocol):
    """What is read of a worker's report."""

    @property
    def worker(self) -> str: ...
    @property
    def device_kind(self) -> str: ...
    @property
    def draining(self) -> bool: ...
    @property
    def replicas(self) -> Sequence[Replica]: ...


class Level(StrEnum):
    """How much of what is wanted is there."""

    AS_PLANNED = "as_planned"
    DIFFERS = "differs"
    """Queries are answered, but not all is as it should be."""
    DOWN = "down"
    """No worker is running: no query can be answered."""


class CountSource(StrEnum):
    """Where the wanted number of workers comes from."""

    STORED = "stored"
    """``modelless workers scale`` or the control API; it wins over the settings."""
    SETTINGS = "settings"
    PLAN = "plan"
    """Where plans decide (``MODELLESS_ELASTIC``): up to what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStatus:
    """Workers of one device kind."""

    device_kind: str
    wanted: int
    """How many workers should be running now."""
    running: int
    """How many are connected, answer and are not draining."""
    draining: int
    missing: int
    asked: int
    """How many ``modelless workers scale`` asked for, or else the settings."""
    source: CountSource
    """Where ``wanted`` comes from."""
    settings: int | None
    """How many MODELLESS_WORKERS or MODELLESS_SLICES says; None for a kind that this machine is not
    sliced into."""
    silent: int = 0
    """How many are connected and have said nothing for a while: stopped, or hanging."""


PlacementKey = tuple[str, str, str]
"""Worker, task and variant."""


class PlacedState(StrEnum):
    """What became of a placement: the state of a replica, or why there is none."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    DAMAGED = "damaged"
    MISSING = "missing"
    """Its worker is running and does not hold it."""
    WORKER_GONE = "worker_gone"
    """Its worker is not running, or draining."""
    WORKER_SILENT = "worker_silent"
    """Its worker does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCounts:
    """Counts of the placements of a plan, by what became of them."""

    wanted: int
    """All placements of the plan."""
    ready: int
    """Those whose variant is ready."""
    loading: int
    """Those whose variant is being loaded."""
    missing: int
    """Those that are neither ready nor loading, or on a worker that is gone."""
    unplanned: int
    """Variants that are ready and not planned: loaded for queries, or about to be unloaded."""
    instead: int = 0
    """Of those that are missing, how many are ready on a worker that the plan does not name: it
    came in the place of another one, and no plan could be made or kept since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """What is wanted and what is running."""

    level: Level
    sentence: str
    kinds: tuple[KindStatus, ...]
    replicas: PlacementCounts
    placements: Mapping[PlacementKey, PlacedState]
    """The state of each placement of the plan."""


def kind_statuses(
    own: Mapping[str, int],
    stored: Mapping[str, int],
    workers: Iterable[Worker],
    planned: Mapping[str, int] | None = None,
    silent_s: Mapping[str, float] = MappingProxyType({}),
) -> tuple[KindStatus, ...]:
    """Workers by device kind, ordered by name.

    Args:
        own: how many workers the settings ask for, by each device kind that they slice this machine
            into.
        stored: how many were asked for over the API, by device kind; these win.
        planned: how many the plan wants, by device kind; None where plans do not decide.
        silent_s: workers that do not answer, and for how long.
    """
    statuses = tuple(workers)
    there = [one for one in statuses if not one.draining]
    running = Counter(one.device_kind for one in there if one.worker not in silent_s)
    silent = Counter(one.device_kind for one in there if one.worker in silent_s)
    draining = Counter(one.device_kind for one in statuses if one.draining)
    asked = {**own, **stored}
    rows = []
    for kind in sorted({*asked, *running, *silent, *draining, *(planned or {})}):
        wanted = asked.get(kind, 0)
        source = CountSource.STORED if kind in stored else CountSource.SETTINGS
        if planned is not None and planned.get(kind, 0) != wanted:
            wanted, source = planned.get(kind, 0), CountSource.PLAN
        rows.append(
            KindStatus(
                device_kind=kind,
                wanted=wanted,
                running=running[kind],
                draining=draining[kind],
                missing=max(0, wanted - running[kind] - silent[kind]),
                asked=asked.get(kind, 0),
                source=source,
                settings=own.get(kind),
                silent=silent[kind],
            )
        )
    return tuple(rows)


def fleet_status(
    kinds: Sequence[KindStatus],
    plan: Plan | None,
    workers: Iterable[Worker],
    lack: str = "",
    unmeasured: Mapping[str, int] | None = None,
    silent_s: Mapping[str, float] = MappingProxyType({}),
) -> FleetStatus:
    """Compare the workers with the numbers wanted, and what they hold with the plan.

    Args:
        lack: why workers are missing, where that is known.
        unmeasured: how many variants have no profile yet and so answer nothing, by device kind.
        silent_s: workers that do not answer, and for how long.
    """
    there = [status for status in workers if not status.draining]
    serving = [status for status in there if status.worker not in silent_s]
    placements = _placed(plan, serving, {status.worker for status in there} & silent_s.keys())
    held = {
        (status.worker, replica.task, replica.variant)
        for status in serving
        for replica in status.replicas
        if replica.state is ReplicaState.READY
    }
    counts = Counter(placements.values())
    ready, loading = counts[PlacedState.READY], counts[PlacedState.LOADING]
    replicas = PlacementCounts(
        wanted=len(placements),
        ready=ready,
        loading=loading,
        missing=len(placements) - ready - loading,
        unplanned=len(held - placements.keys()),
        instead=_instead(placements, held),
    )
    level, sentence = _judged(kinds, plan, replicas, lack, silent_s)
    running = {row.device_kind for row in kinds if row.running}
    if level is not Level.DOWN:
        sentence += _unmeasured_words(
            {kind: count for kind, count in (unmeasured or {}).items() if kind in running}
        )
    return FleetStatus(
        level=level,
        sentence=sentence,
        kinds=tuple(kinds),
        replicas=replicas,
        placements=placements,
    )


def asked_words(row: KindStatus, sliced_by: str = "MODELLESS_WORKERS") -> str:
    """How many workers are asked for, and by what: ``1 worker cpu-2 (stored by ...)``.

    ``sliced_by`` is the setting that it would be else.
    """
    words = _workers(row.asked, row.device_kind)
    if row.source is CountSource.SETTINGS or row.settings == row.asked:
        return words
    said = "" if row.settings is None else f"; {sliced_by} says {row.settings}"
    return f"{words} (stored by `modelless workers scale`{said})"


def _placed(
    plan: Plan | None, serving: Sequence[Worker], silent: Container[str]
) -> dict[PlacementKey, PlacedState]:
    states: dict[PlacementKey, PlacedState] = {
        (status.worker, replica.task, replica.variant): PlacedState(replica.state)
        for status in serving
        for replica in status.replicas
    }
    here = {status.worker for status in serving}

    def without(worker: str) -> PlacedState:
        if worker in silent:
            return PlacedState.WORKER_SILENT
        return PlacedState.MISSING if worker in here else PlacedState.WORKER_GONE

    return {
        (p.worker, p.task, p.variant): states.get((p.worker, p.task, p.variant), without(p.worker))
        for p in (plan.placements if plan is not None else ())
    }


def _instead(placements: Mapping[PlacementKey, PlacedState], held: Set[PlacementKey]) -> int:
    """How many placements on workers that are gone others make up for that the plan does not name.

    Args:
        held: what is ready.
    """
    named = {worker for worker, _, _ in placements}
    gone = (PlacedState.WORKER_GONE, PlacedState.WORKER_SILENT)
    lost = Counter(key[1:] for key, state in placements.items() if state in gone)
    return (lost & Counter(key[1:] for key in held if key[0] not in named)).total()


def _judged(
    kinds: Sequence[KindStatus],
    plan: Plan | None,
    replicas: PlacementCounts,
    lack: str,
    silent_s: Mapping[str, float],
) -> tuple[Level, str]:
    wanted, running = sum(row.wanted for row in kinds), sum(row.running for row in kinds)
    asked = ", ".join(_workers(row.wanted, row.device_kind) for row in kinds if row.wanted)
    if not running and (going := sum(row.draining for row in kinds)):
        return Level.DIFFERS, (
            f"Only {counted(going, 'worker')} on the way out {'is' if going == 1 else 'are'} "
            f"running, {asked or 'none'} wanted."
        )
    if not running and any(row.silent for row in kinds):
        return Level.DOWN, (
            f"No worker answers: {_silent_words(silent_s)}. Queries wait until one answers or "
            "another one has started."
        )
    if not running:
        if wanted:
            return Level.DOWN, (
                f"No worker is running, {asked} wanted: no query can be answered until one has "
                "started."
            )
        kind = kinds[0].device_kind if kinds else "KIND"
        return Level.DOWN, (
            "No worker is wanted and none is running: no query can be answered; "
            f"`modelless workers scale {kind} 1` asks for one."
        )
    differences = [words for row in kinds if (words := _kind_difference(row))]
    if any(row.silent for row in kinds):
        differences.append(_silent_words(silent_s))
    if lack:
        differences.append(lack)
    if plan is None:
        differences.append("nothing has been planned yet")
    elif words := _replica_difference(replicas):
        differences.append(words)
    if differences:
        text = "; ".join(differences)
        return Level.DIFFERS, f"{text[0].upper()}{text[1:]}."
    beside = f", {replicas.unplanned} beside the plan" if replicas.unplanned else ""
    there = "1 worker is running" if running == 1 else f"{running} workers are running"
    loaded = f"{replicas.ready} of {counted(replicas.wanted, 'replica')} loaded"
    return Level.AS_PLANNED, f"As planned: {there}, {loaded}{beside}."


def _kind_difference(row: KindStatus) -> str:
    if row.missing or (row.silent and row.running < row.wanted):
        there = f"{row.running} of {_workers(row.wanted, row.device_kind)} running"
        return f"{there}, {row.missing} missing" if row.missing else there
    words = []
    if row.running > row.wanted:
        words.append(
            f"{_workers(row.running, row.device_kind)} running where {row.wanted} "
            f"{'is' if row.wanted == 1 else 'are'} wanted"
        )
    if row.draining:
        words.append(f"{_workers(row.draining, row.device_kind)} draining")
    return ", ".join(words)


def _silent_words(silent_s: Mapping[str, float]) -> str:
    """``w2 has not answered for 4 s``, the longest first."""
    longest = sorted(silent_s, key=lambda worker: (-silent_s[worker], worker))
    words = [f"{worker} has not answered for {silent_s[worker]:,.0f} s" for worker in longest[:3]]
    if more := longest[3:]:
        words.append(f"nor have {len(more)} others" if len(more) > 1 else "nor has another one")
    return ", ".join(words)


def _replica_difference(replicas: PlacementCounts) -> str:
    if replicas.ready == replicas.wanted:
        return ""
    there = replicas.ready + replicas.instead
    words = [f"{there} of {counted(replicas.wanted, 'planned replica')} loaded"]
    if replicas.instead:
        words.append(f"{replicas.instead} of them on workers that the plan does not name yet")
    if replicas.loading:
        words.append(f"{replicas.loading} loading")
    if missing := replicas.missing - replicas.instead:
        words.append(f"{missing} missing")
    return ", ".join(words)


def _unmeasured_words(unmeasured: Mapping[str, int]) -> str:
    words = [
        f"{counted(count, 'variant')} on {kind}" for kind, count in unmeasured.items() if count
    ]
    if not words:
        return ""
    one = sum(unmeasured.values()) == 1
    return (
        f" {' and '.join(words)} {'is' if one else 'are'} yet to be measured and "
        f"{'answers' if one else 'answer'} from then on."
    )


def _workers(count: int, kind: str) -> str:
    return f"{counted(count, 'worker')} {kind}"
