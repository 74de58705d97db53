"""Every constraint of the planning model, broken one at a time."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from planner.latency_curve import Curve
from planner.solver.check import violations
from planner.solver.problem import (
    Assignment,
    AvailableKind,
    Offer,
    Pool,
    Power,
    Problem,
    Solution,
)
from planner.types import Demand
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

GPU = AvailableKind(name=DeviceKindName("gpu"), count=1, memory_mib=1_000.0, usd_per_hour=2.0)
SMALL = Offer(
    task=TaskName("digits"),
    model=ModelName("cnn"),
    variant=VariantName("small"),
    accuracy=0.9,
    device_kind=GPU.name,
    curve=Curve([(1, 10.0), (4, 16.0)]),
    memory_mib=600.0,
)
LARGE = replace(SMALL, variant=VariantName("large"), accuracy=0.95, memory_mib=400.0)
OTHER = replace(SMALL, task=TaskName("faces"))
ASKED = Demand(task=SMALL.task, latency_ms=34.0, accuracy=0.9, qps=100.0)
PROBLEM = Problem(offers=(SMALL, LARGE, OTHER), kinds=(GPU,), demand=(ASKED,))
PART = Assignment(device=0, demand=0, offer=0, batch_size=4, qps=100.0, share=0.4)
PLAN = Solution(
    devices=(GPU.name,),
    assignments=(PART,),
    served_qps=100.0,
    accuracy=0.9,
    usd_per_hour=2.0,
    feasible=True,
    objective=2.0,
    bound=2.0,
)


def test_a_plan_that_keeps_everything() -> None:
    assert violations(PROBLEM, PLAN) == ()


def test_two_variants_share_a_device() -> None:
    halves = (replace(PART, qps=50.0, share=0.2), replace(PART, offer=1, qps=50.0, share=0.2))
    plan = replace(PLAN, assignments=halves, accuracy=0.925)

    assert violations(PROBLEM, plan) == ()


def slow(latency_ms: float, interference: float = 0.5) -> Problem:
    kind = replace(GPU, interference=interference)
    return replace(PROBLEM, kinds=(kind,), demand=(replace(ASKED, latency_ms=latency_ms),))


def test_variants_that_share_a_device_slow_one_another_down() -> None:
    """Batches of 16 ms take 24, so a query needs 2 x 24 + 2 ms, and each half 0.3 of the time."""
    halves = tuple(replace(PART, offer=offer, qps=50.0, share=0.3) for offer in (0, 1))
    plan = replace(PLAN, assignments=halves, accuracy=0.925)

    assert violations(slow(50.0), plan) == ()
    assert "waits 24 ms, runs 24 ms" in violations(slow(49.9), plan)[0]
    assert "busy for 0.6" in violations(replace(slow(50.0), load=0.59), plan)[0]
    forgotten = tuple(replace(part, share=0.2) for part in halves)
    assert "says a share of 0.2" in violations(slow(50.0), replace(plan, assignments=forgotten))[0]


def test_a_variant_alone_is_not_slowed_down() -> None:
    assert violations(slow(34.0), PLAN) == ()


def broken(problem: Problem = PROBLEM, **changes: object) -> str:
    [sentence] = violations(problem, replace(PLAN, **changes))  # type: ignore[arg-type]
    return sentence


def asking(**changes: object) -> Problem:
    return replace(PROBLEM, demand=(replace(ASKED, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "changes", "sentence"),
    [
        (PROBLEM, {"devices": (GPU.name,) * 2, "usd_per_hour": 4.0}, "2 devices of kind gpu"),
        (PROBLEM, {"devices": (DeviceKindName("tpu"),)}, "unknown device kind tpu"),
        (PROBLEM, {"assignments": (replace(PART, device=1),)}, "refers to nothing"),
        (PROBLEM, {"assignments": (replace(PART, offer=2),)}, "the variant is of task faces"),
        (PROBLEM, {"assignments": (replace(PART, share=0.3),)}, "says a share of 0.3"),
        (PROBLEM, {"assignments": (replace(PART, batch_size=5),)}, "a batch of 5 is forbidden"),
        (replace(PROBLEM, most=(3,)), {}, "its queries fill batches of 3, not of 4"),
        (asking(latency_ms=33.9), {}, "waits 16 ms, runs 16 ms"),
        (asking(accuracy=0.91), {}, "below the floor 91.00 %"),
        (asking(qps=99.0), {}, "asks for 99 and gets 100"),
        (asking(qps=101.0), {}, "says feasible is True"),
        (PROBLEM, {"feasible": False}, "says feasible is False"),
        (PROBLEM, {"served_qps": 99.0}, "says served_qps is 99.0"),
        (PROBLEM, {"accuracy": 0.95}, "says accuracy is 0.95"),
        (PROBLEM, {"usd_per_hour": 1.0}, "says usd_per_hour is 1.0"),
        (
            replace(PROBLEM, pools=(Pool(name="rack", capacity=3.0, uses={GPU.name: 4.0}),)),
            {},
            "pool rack holds 3, 4 are used",
        ),
        (replace(PROBLEM, load=0.39), {}, "busy for 0.4"),
        (
            replace(PROBLEM, kinds=(replace(GPU, memory_mib=599.0),)),
            {},
            "holds 600 MiB of 599",
        ),
    ],
)
def test_what_is_broken_is_named(
    problem: Problem, changes: dict[str, object], sentence: str
) -> None:
    assert sentence in broken(problem, **changes)


NAN: Any = nan
DRAWN = Power(watts=1.0, idle_watts=1.0, carbon_g_per_hour=1.0, unmeasured_qps=0.0)


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        *[(PROBLEM, {name: NAN}) for name in ("served_qps", "accuracy", "usd_per_hour")],
        *[(PROBLEM, {name: NAN}) for name in ("objective", "bound")],
        *[
            (PROBLEM, {"power": replace(DRAWN, **{name: NAN})})
            for name in ("watts", "idle_watts", "carbon_g_per_hour", "unmeasured_qps")
        ],
        *[
            (PROBLEM, {"assignments": (replace(PART, **{name: NAN}),)})
            for name in ("qps", "share", "batch_size", "device", "demand", "offer")
        ],
        *[(asking(**{name: NAN}), {}) for name in ("qps", "latency_ms", "accuracy")],
        *[(replace(PROBLEM, **{name: NAN}), {}) for name in ("load", "overhead_ms")],
        (replace(PROBLEM, most=(NAN,)), {}),
        *[
            (replace(PROBLEM, kinds=(replace(GPU, **{name: NAN}),)), {})
            for name in ("count", "memory_mib", "usd_per_hour")
        ],
        *[
            (replace(PROBLEM, offers=(replace(SMALL, **{name: NAN}),)), {})
            for name in ("accuracy", "memory_mib")
        ],
        (replace(PROBLEM, pools=(Pool(name="rack", capacity=NAN, uses={}),)), {}),
        (replace(PROBLEM, pools=(Pool(name="rack", capacity=1.0, uses={GPU.name: NAN}),)), {}),
    ],
)
def test_what_is_no_number_keeps_no_constraint(
    problem: Problem, changes: dict[str, object]
) -> None:
    assert violations(problem, replace(PLAN, **changes))  # type: ignore[arg-type]


def test_a_plan_that_says_what_it_draws_keeps_everything() -> None:
    assert violations(PROBLEM, replace(PLAN, power=DRAWN)) == ()


def test_no_limit_of_memory_is_no_constraint() -> None:
    free = replace(PROBLEM, kinds=(replace(GPU, memory_mib=inf),))

    assert violations(free, PLAN) == ()
