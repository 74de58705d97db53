"""In which order a memory that is short takes what is planned and what is asked for."""

from collections.abc import Callable, Mapping

from planner.eviction.expected import expected_qps
from planner.eviction.rules import absence_s, per_mib
from planner.eviction.victims import HYSTERESIS
from planner.reconcile.worker_memory import PlannedWork, WorkerMemory
from planner.types import Candidate
from variants.types import DeviceKindName, VariantKey


def by_worth(
    offers: Mapping[VariantKey, Candidate],
    memory: WorkerMemory,
    work: Mapping[VariantKey, PlannedWork],
    beside_qps: Callable[[DeviceKindName, VariantKey], float],
    held: Callable[[DeviceKindName, VariantKey], bool],
) -> list[VariantKey]:
    """What is planned, and what is there and asked for beside the plan.

    The variant whose absence would cost most per MiB comes first, as workers count it. For one that
    is there counts the larger of what is planned and what its worker has learned, ``HYSTERESIS``
    times, so that it is not replaced for a small gain. One that is not there and is held by another
    worker of the kind counts by its share of the time: without it queries are refused only where
    the other has no time for them. What is missing has to pay for its load
    (``WorkerMemory.pays_ahead``).
    """
    kind, there = memory.report.device_kind, memory.there
    ranked: list[tuple[float, bool, VariantKey]] = []
    for key, replica in memory.replicas.items():
        part = work.get(key)
        if (part is None and not replica.asked) or key not in there:
            continue
        candidate = offers.get(key)
        if candidate is None:
            continue
        qps, urgent = replica.rate_qps, replica.urgent
        if part is not None:
            qps, urgent = expected_qps(qps, part.qps), max(part.urgent, urgent)
        elif qps > 0.0:
            most_qps = beside_qps(kind, key)
            qps = most_qps if most_qps < qps else qps
        if part is None and qps <= 0.0:
            continue  # its absence would cost nothing
        ranked.append((-HYSTERESIS * _worth(candidate, qps, urgent), False, key))
    for key, part in work.items():
        candidate = None if key in there else offers.get(key)
        if candidate is not None:
            qps = part.qps * min(1.0, part.share) if held(kind, key) else part.qps
            if memory.pays_ahead(candidate, qps, part.urgent):
                ranked.append((-_worth(candidate, qps, part.urgent), True, key))
    ranked.sort()
    return [key for *_, key in ranked]


def _worth(candidate: Candidate, qps: float, urgent: float) -> float:
    """What the absence of a variant costs per MiB."""
    return per_mib(absence_s(qps, candidate.load_ms / 1_000, urgent), candidate.memory_mib)


def as_it_came(
    offers: Mapping[VariantKey, Candidate],
    memory: WorkerMemory,
    work: Mapping[VariantKey, PlannedWork],
    beside_qps: Callable[[DeviceKindName, VariantKey], float],
    held: Callable[[DeviceKindName, VariantKey], bool],
) -> list[VariantKey]:
    """Under a published rule: what is there and asked for, then what is planned and missing.

    These rules say what leaves for a query. So nothing that a query asked for leaves for a plan,
    and what is planned is loaded into memory that is free.
    """
    there = [key for key in (*work, *memory.asked()) if memory.is_there(key)]
    missing = [
        key
        for key in sorted(work, key=lambda key: (-work[key].share, key))
        if key in offers and memory.pays_ahead(offers[key], work[key].qps, work[key].urgent)
    ]
    return [key for key in dict.fromkeys((*there, *missing)) if key in offers]
