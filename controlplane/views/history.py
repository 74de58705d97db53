"""History: what was asked and how it ended over the last hour, ten seconds at a time, over all
gateways.

Gateways leave a sample of each ten seconds in the live state
(``controlplane.gateway.reports.history_samples``); they are put together here, for the charts of
the page, ``GET /v1/history`` and ``GET /v1/demand``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from controlplane.demand_counters import parse_counter_name
from controlplane.views.service_status import Outcomes, outcomes_by_task

STEP_S = 10.0
LONGEST_S = 3600.0
SETTLE_S = 3.0
"""So long after ten seconds are over, all gateways have told of them."""
LATE_SLOTS = 3
"""A sample of so many tens of seconds before another one may come after it: clocks differ a little,
and gateways do not write at the same moment."""

Latencies = Mapping[tuple[float, float | None], int]
"""How many answers took from so many ms to so many."""


def slot_of(wall_s: float) -> int:
    """The number of the ten seconds, counted since 1970, that a Unix time is in."""
    return int(wall_s // STEP_S)


def history(
    samples: Iterable[Mapping[str, Any]], now_s: float, seconds: float, task: str | None = None
) -> dict[str, Any]:
    """Put samples together.

    Args:
        samples: what gateways left, oldest first; several of one moment are added up. Where a clock
            was set back, those of before count up to the new time.
        now_s: Unix time.
        seconds: how far back to go, at most ``LONGEST_S``.
        task: this one only; None for all that were asked.

    Returns:
        The fields of ``controlplane.views.schemas.History``. Where no gateway has left a sample,
        all numbers of that moment are None; where none was answered, so are latencies and accuracy.
    """
    end = slot_of(now_s - SETTLE_S)
    begin = end - max(1, round(min(seconds, LONGEST_S) / STEP_S))
    by_slot: dict[int, list[Mapping[str, Mapping[str, Any]]]] = defaultdict(list)
    for sample in _before_set_back(list(samples)):
        if begin <= int(sample["slot"]) < end:
            by_slot[int(sample["slot"])].append(sample["tasks"])
    names = {name for told in by_slot.values() for tasks in told for name in tasks if name}
    wanted = sorted(names) if task is None else [task]
    return {
        "begins_s": begin * STEP_S,
        "step_s": STEP_S,
        "tasks": [
            {"task": name, **_columns([_moment(by_slot.get(s), name) for s in range(begin, end)])}
            for name in wanted
        ],
    }


def asked(
    samples: Iterable[Mapping[str, Any]], now_s: float, seconds: float, task: str | None = None
) -> dict[str, Any]:
    """Put together what was asked for; the arguments are those of ``history``.

    Returns:
        The fields of ``controlplane.views.schemas.AskedHistory``. Where no gateway has left a
        sample, rows are None.
    """
    end = slot_of(now_s - SETTLE_S)
    begin = end - max(1, round(min(seconds, LONGEST_S) / STEP_S))
    by_slot: dict[int, Counter[str]] = {}
    for sample in _before_set_back(list(samples)):
        if begin <= int(sample["slot"]) < end:
            by_slot.setdefault(int(sample["slot"]), Counter()).update(sample.get("asked", {}))
    found = []
    for name in sorted({name for counted in by_slot.values() for name in counted}):
        parsed = parse_counter_name(name)
        if parsed is None or (task is not None and parsed[0] != task):
            continue
        of_task, latency_ms, accuracy, variant = parsed
        rows = [by_slot[slot][name] if slot in by_slot else None for slot in range(begin, end)]
        found.append(
            {
                "task": of_task, "latency_ms": latency_ms, "accuracy": accuracy,
                "variant": variant, "rows": rows,
            }
        )  # fmt: skip
    found.sort(key=lambda one: (one["task"], one["latency_ms"], one["accuracy"] or 0.0))
    return {"begins_s": begin * STEP_S, "step_s": STEP_S, "classes": found}


def _before_set_back(samples: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Samples without those of moments that come once more, because a clock was set back."""
    first = inf
    for sample in reversed(samples):
        slot = int(sample["slot"])
        if slot <= first + LATE_SLOTS:
            yield sample
            first = min(first, slot)


def _columns(moments: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in moments] for name in _NOTHING_KNOWN}


_NOTHING_KNOWN: Mapping[str, Any] = dict.fromkeys(
    ("met", "late", "refused", "infeasible", "p50_ms", "p95_ms", "accuracy")
)


def _moment(told: Sequence[Mapping[str, Mapping[str, Any]]] | None, task: str) -> Mapping[str, Any]:
    """What became of a task's queries in one slot of time; ``told``: by each gateway."""
    if told is None:
        return _NOTHING_KNOWN
    of_task = [tasks[task] for tasks in told if task in tasks]
    outcomes = outcomes_by_task([{task: one} for one in of_task]).get(task, Outcomes())
    latencies: Counter[tuple[float, float | None]] = Counter()
    for one in of_task:
        for low, high, count in one["latencies"]:
            latencies[low, high] += count
    right = sum(one["accuracy"][0] for one in of_task)
    rows = sum(one["accuracy"][1] for one in of_task)
    return {
        "met": outcomes.met,
        "late": outcomes.late,
        "refused": outcomes.refused + outcomes.infeasible_answered - outcomes.hopeless,
        "infeasible": outcomes.hopeless,
        "p50_ms": quantile_ms(latencies, 0.5),
        "p95_ms": quantile_ms(latencies, 0.95),
        "accuracy": right / rows if rows else None,
    }


def quantile_ms(latencies: Latencies, share: float) -> float | None:
    """So much time, or less, was taken by a share of the answers; None without answers.

    Between the bounds of a bucket it is linear, as Prometheus' ``histogram_quantile`` has it; above
    the last bound it is that bound.
    """
    total = sum(latencies.values())
    if not total:
        return None
    left = share * total
    for (low, high), count in sorted(latencies.items(), key=lambda one: one[0][0]):
        if left <= count:
            return low if high is None else low + (high - low) * left / count
        left -= count
    raise AssertionError("a share is at most 1")
