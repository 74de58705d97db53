"""Why a plan is as it is, in sentences for people."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from planner.reconcile.demand_assignment import DemandAssignment
from planner.reconcile.diff import MemoryMib
from planner.residency.pins import Lack
from planner.selection.eligibility import kept_out
from planner.types import Objective, Observation, WorkerReport
from variants.figures import accuracy_text, figure, percent, some_of
from variants.types import (
    DeviceKindName,
    Placement,
    ReplicaState,
    Rule,
    RuleKind,
    VariantKey,
    WorkerId,
)

_KEPT_OUT = {
    ReplicaState.QUARANTINED: "quarantined",
    ReplicaState.FAILED: "cannot be loaded",
    ReplicaState.DAMAGED: "damaged",
}
MOST_FORBIDDEN = 20
"""So many forbidden variants are named at most."""
DIVIDED = "The demand of"
"""How the sentence begins that says how demand was divided."""
SIZED = "Workers are there"
"""How the sentence begins that says why there are so many."""
_HEADROOM = {True: "", False: ", without headroom for chance"}


def _draw(observation: Observation, assignment: DemandAssignment) -> str:
    """A sentence about what the work of an assignment takes."""
    power = assignment.power
    if power is None:
        return "No energy was measured, so it was divided by cost."
    idle = {kind.name: kind.idle_w for kind in observation.catalog.device_kinds}
    draws = [idle.get(report.device_kind) for report in observation.workers]
    known = [watts for watts in draws if watts is not None]
    text = f"Its work takes {figure(power.watts)} W"
    if len(known) == len(draws):
        text += f" beyond the {figure(sum(known))} W that these workers draw idle"
    if power.carbon_g_per_hour is not None:
        text += f", and emits {figure(power.carbon_g_per_hour)} g of CO2 per hour"
    if power.unmeasured_qps:
        text += (
            f"; {figure(power.unmeasured_qps)} rows per second of unmeasured variants not counted"
        )
    return f"{text}."


def _forbidden(rules: Iterable[Rule]) -> list[str]:
    """A sentence about what operators have forbidden; none where that is nothing."""
    names = [
        f"{rule.task}/{rule.variant}{rule.device_kind and f' on {rule.device_kind}'}"
        for rule in rules
        if rule.kind is RuleKind.FORBID
    ]
    return [f"Operators have forbidden {some_of(names, MOST_FORBIDDEN)}."] if names else []


def _left_out(
    report: WorkerReport,
    sizes: Mapping[VariantKey, float],
    in_order: Sequence[float],
    away: Sequence[VariantKey],
    left_mib: float,
) -> str:
    """Why a worker is not to hold the rest.

    Args:
        sizes: of all that has a profile on its kind, in MiB.
        in_order: the same, ascending.
        away: what it is to hold, or what is kept out of it.
        left_mib: what the first takes less than its memory, by profiles.
    """
    if in_order[0] <= left_mib:  # else nothing has room, as mostly
        mib = {(each.task, each.variant): each.memory_mib for each in report.replicas}
        left_mib -= sum([max(0.0, mib[key] - sizes[key]) for key in away if key in mib])
    fitting = bisect_right(in_order, left_mib) - sum([sizes[key] <= left_mib for key in away])
    text, without = "", len(sizes) - len(away) - fitting
    if without:
        text += f"; no room for {without}: what demand and recent use ask for came first"
    if fitting:
        text += f"; {fitting} with room not loaded ahead: queries have had others loaded lately"
    return text


def headline(sentences: Sequence[str]) -> str:
    """The one of a plan's sentences that says most: how demand was divided, else the first."""
    divided = [sentence for sentence in sentences if sentence.startswith(DIVIDED)]
    return next(iter((*divided, *sentences)))


def explanation(
    observation: Observation,
    assignment: DemandAssignment,
    again: bool,
    lacks: Iterable[Lack] = (),
    told: Iterable[str] = (),
) -> tuple[str, ...]:
    """A sentence for each worker, about what it holds and what does not fit; before them one for
    each pin that cannot be held, after them one for what operators have forbidden.

    Args:
        told: those of the workers, where somebody reads them (``told_of_workers``).
    """
    sentences = [lack.sentence for lack in lacks]
    sentences += [*observation.declared, *assignment.out_of_reach, *assignment.crossings]
    kinds = {report.device_kind for report in observation.workers}
    sentences += [
        f"On workers of {kind} that serve with several variants, batches are planned to take "
        f"{percent(part)} % longer, as they do."
        for kind, part in sorted(observation.interference.items())
        if kind in kinds
    ]
    if again and assignment.asked_qps > 0:
        served = percent(min(1.0, assignment.served_qps / assignment.asked_qps))
        asked = figure(assignment.asked_qps, 0)
        unit = "row" if asked == "1" else "rows"
        sentences.append(
            f"{DIVIDED} {asked} {unit} per second was divided anew: "
            f"{served} % of it can be served, at a "
            f"mean accuracy of {accuracy_text(assignment.accuracy)}"
            f"{_HEADROOM[assignment.tail > 0]}."
        )
        if observation.objective is Objective.ENERGY:
            sentences.append(_draw(observation, assignment))
    sentences += told
    sentences += _forbidden(observation.catalog.rules)
    return tuple(sentences)


def told_of_size(observation: Observation, why: str) -> tuple[str, ...]:
    """Why there are to be so many workers; nothing where the plan does not decide it."""
    if not observation.elastic:
        return ()
    expected = observation.demand if observation.expected is None else observation.expected
    envelope = expected if observation.envelope is None else observation.envelope
    if not envelope:
        return (f"{SIZED}: {why}.",)
    there, asked = (sum(each.qps for each in some) for some in (envelope, expected))
    unit = "row" if figure(there) == "1" else "rows"
    text = f"{SIZED} for {figure(there)} {unit} per second, where {figure(asked)} are expected"
    text = f"{text}: {why}."
    room = observation.room
    if observation.objective is not Objective.COST or not room.asked:
        return (text,)
    kept = "All" if room.part == 1.0 else f"{100 * room.part:.0f} %" if room.part else "None"
    lost = percent(room.lost / room.asked)
    return (
        f"{text} {kept} of the room for chance is kept, as {lost} % of some {room.asked:,.0f} "
        "queries were late, or refused for want of time or room, lately.",
    )


class ToldOfWorkers(NamedTuple):
    """A sentence for each worker, and what they say it of."""

    sentences: Sequence[str] = ()
    memory_mib: MemoryMib | None = None
    placements: Sequence[Placement] = ()
    workers: Sequence[WorkerReport] = ()
    nothing_out: bool = True
    """Whether nothing was kept out of any of them."""


_named = attrgetter("id", "device_kind", "memory_mib", "draining")


def told_of_workers(
    memory_mib: MemoryMib,
    workers: Sequence[WorkerReport],
    placements: Sequence[Placement],
    before: ToldOfWorkers | None = None,
) -> ToldOfWorkers:
    """A sentence for each worker; those of ``before`` where they say the same."""
    if (
        before is not None
        and before.memory_mib is memory_mib
        and before.placements is placements
        and len(before.workers) == len(workers)
        and all(
            one is now or (before.nothing_out and _named(one) == _named(now) and not kept_out(now))
            for one, now in zip(before.workers, workers, strict=True)
        )
    ):
        return before
    kinds = {report.device_kind for report in workers}
    sentences = _of_workers(memory_mib, workers, placements, kinds)
    nothing_out = not any(map(kept_out, workers))
    return ToldOfWorkers(sentences, memory_mib, placements, workers, nothing_out)


def _of_workers(
    memory_mib: MemoryMib,
    workers: Iterable[WorkerReport],
    placements: Iterable[Placement],
    kinds: Collection[DeviceKindName],
) -> list[str]:
    """A sentence for each worker; ``kinds`` has all of theirs."""
    sentences: list[str] = []
    by_kind: dict[DeviceKindName, dict[VariantKey, float]] = {}
    for (kind, task, variant), mib in memory_mib.items():
        by_kind.setdefault(kind, {})[task, variant] = mib
    in_order = {kind: sorted(sizes.values()) for kind, sizes in by_kind.items() if kind in kinds}
    held: dict[WorkerId, list[VariantKey]] = {}
    for placement in placements:
        held.setdefault(placement.worker, []).append((placement.task, placement.variant))
    for report in sorted(workers, key=lambda r: r.id):
        if report.draining:
            sentences.append(f"{report.id} drains, or says nothing, and gets nothing.")
            continue
        placed = held.get(report.id, [])
        sizes = by_kind.get(report.device_kind, {})
        used_mib = sum([sizes[key] for key in placed])
        tasks = sorted({task for task, _ in placed})
        kept_out = [replica for replica in report.replicas if replica.state.kept_out]
        of = f" of {', '.join(tasks)}" if tasks else ""
        text = f"{report.id} ({report.device_kind}) holds " + (
            f"{len(placed)} of {len(sizes)} variants{of} in {used_mib:,.0f} of"
            f" {report.memory_mib:,.0f} MiB"
            if sizes
            else "nothing, as there is no variant for it"
        )
        for state, words in _KEPT_OUT.items():
            if names := sorted(replica.variant for replica in kept_out if replica.state is state):
                text += f"; {words}: {', '.join(names)}"
        away = [*placed, *(key for r in kept_out if (key := (r.task, r.variant)) in sizes)]
        if len(sizes) > len(away):
            left_mib = report.memory_mib - used_mib
            text += _left_out(report, sizes, in_order[report.device_kind], away, left_mib)
        sentences.append(f"{text}.")
    return sentences
