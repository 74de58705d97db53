"""What a gateway knows of the control loop, and the metrics that show it.

The control loop listens nowhere: it tells of itself through the live state once a turn
(``controlplane.controller.events.loop_report``), and what it told last stays.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import time
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controlplane.residency.standing import standings
from controlplane.timestamps import StampAges
from controlplane.views.catalog.answer_schemas import read_answers
from planner.feedback.accuracies import read
from variants.types import CatalogSnapshot, RuleKind, VariantKey
from workers.types import WorkerStatus

FROM_THE_START = (
    "worker_joined", "worker_left", "worker_lost", "worker_warning", "quarantined",
    "artifact_invalid", "load_failed", "gateway_lost",
)  # fmt: skip
"""Kinds of events whose series is there before the first: ``rate`` sees no step from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLoopSeen:
    """What is known of the control loop at one moment."""

    told: Mapping[str, Any] = field(default_factory=dict)
    """What it told last of itself; empty where it never did."""
    now_s: float = 0.0
    """Unix time."""
    silent_s: float | None = None
    """How long ago the last turn ended that did not fail; None where it has not said."""
    frozen: bool = False
    """Whether an operator has the plan stay as it is."""
    rules_not_kept: int = 0
    moved: Mapping[VariantKey, float] = field(default_factory=dict)
    """The part of the answers of variants that falls into other classes than their first ones."""
    changed: Mapping[VariantKey, bool] = field(default_factory=dict)
    """Whether that is a change of which no operator has said that it is as it should be."""
    shortfalls: Mapping[VariantKey, float] = field(default_factory=dict)
    """By how much clients find variants less accurate than measured, where that is no chance."""


class HeardOfLoop:
    """What the control loop told last of itself."""

    def __init__(self) -> None:
        self.told: Mapping[str, Any] = {}
        """Empty until it does."""
        self._ages = StampAges()

    def hear(self, told: Mapping[str, Any] | None) -> None:
        """Take in what the control loop told last; None: nothing new."""
        self.told = told or self.told

    def silent_s(self) -> float | None:
        """How long ago it turned last; None where it has not said."""
        turned_s = self.told.get("turned_s")
        return None if turned_s is None else self._ages.age_s("control loop", float(turned_s))


async def loop_seen(
    heard: HeardOfLoop, catalog: CatalogSnapshot, statuses: Sequence[WorkerStatus], *, frozen: bool
) -> ControlLoopSeen:
    """The control loop, by what it told last and by what the catalog and workers say.

    Args:
        frozen: whether an operator has the plan stay as it is.
    """
    now_s = time()
    answers = read_answers(heard.told.get("answers", ()))
    kept = await asyncio.to_thread(standings, catalog, statuses, now_s)
    return ControlLoopSeen(
        told=heard.told,
        now_s=now_s,
        silent_s=heard.silent_s(),
        frozen=frozen,
        rules_not_kept=sum(
            not kept[rule.id].kept for rule in catalog.rules if rule.kind is not RuleKind.FREEZE
        ),
        moved={key: one.moved for key, one in answers.items() if one.moved is not None},
        changed={key: one.changed for key, one in answers.items()},
        shortfalls=_shortfalls(heard.told, catalog),
    )


def _shortfalls(told: Mapping[str, Any], catalog: CatalogSnapshot) -> dict[VariantKey, float]:
    said = read(told.get("contradicted", ()))
    return {
        variant.key: variant.accuracy - said[variant.key].accuracy
        for variant in catalog.variants
        if variant.key in said
    }


def control_loop_metrics(seen: ControlLoopSeen) -> Iterator[Metric]:
    """Whether the control loop turns, and what stands between it and what is wanted."""
    told = seen.told
    tick = GaugeMetricFamily(
        "modelless_tick_age_seconds", "Since the last turn of the control loop that did not fail"
    )
    if seen.silent_s is not None:
        tick.add_metric([], seen.silent_s)
    plan = GaugeMetricFamily("modelless_plan_age_seconds", "Since the newest plan was made")
    if told.get("plan_at"):
        made_s = datetime.fromisoformat(str(told["plan_at"])).timestamp()
        plan.add_metric([], max(0.0, seen.now_s - made_s))
    yield from (tick, plan)
    yield GaugeMetricFamily(
        "modelless_plan_frozen", "Whether an operator has frozen the plan", float(seen.frozen)
    )
    yield GaugeMetricFamily(
        "modelless_rules_not_kept", "Rules of operators that are not kept", seen.rules_not_kept
    )
    yield _by_variant(
        "modelless_accuracy_shortfall",
        "Measured accuracy less that by what clients say is right, where the difference is no "
        "chance; negative where they say more",
        seen.shortfalls,
    )
    yield _by_variant(
        "modelless_answers_moved_ratio",
        "The part of a variant's answers that lately falls into other classes than its first ones "
        "did, without what chance would move",
        seen.moved,
    )
    yield _by_variant(
        "modelless_answers_changed",
        "Whether a variant's answers are divided among the classes otherwise than its first ones "
        "were, and no operator has said that this is as it should be",
        seen.changed,
    )
    yield from _headroom(told.get("headroom") or {})
    events = CounterMetricFamily(
        "modelless_events", "Events that the control loop told", labels=["kind"]
    )
    if told:
        counted = dict.fromkeys(FROM_THE_START, 0) | dict(told.get("events", {}))
        for kind, count in sorted(counted.items()):
            events.add_metric([kind], count)
    yield events


def _by_variant(
    name: str, documentation: str, values: Mapping[VariantKey, float]
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(name, documentation, labels=["task", "variant"])
    for key, value in values.items():
        found.add_metric(list(key), float(value))
    return found


def _headroom(told: Mapping[str, Any]) -> Iterator[Metric]:
    """How much more than is asked could be served."""
    every = GaugeMetricFamily(
        "modelless_headroom", "Times the present demand that the workers could serve, 10 at most"
    )
    tasks = GaugeMetricFamily(
        "modelless_task_headroom",
        "Times a task's demand that the workers could serve beside that of the others, 10 at most",
        labels=["task"],
    )
    if told:
        every.add_metric([], float(told["factor"]))
        for one in told["tasks"]:
            tasks.add_metric([one["task"]], float(one["factor"]))
    yield from (every, tasks)
