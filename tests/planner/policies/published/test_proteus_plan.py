"""Proteus' program: golden cases under ``tests/cases/proteus``, and brute force on tiny fleets."""

import json
from collections import Counter
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.latency_table import LatencyTable
from planner.policies.published.proteus_plan import (
    RELATIVE_GAP,
    STAY,
    Allocation,
    Family,
    Setup,
    allocate,
    assign,
    betas,
    setups,
)
from planner.solver.problem import AvailableKind
from planner.types import Candidate
from variants.types import DeviceKindName, TaskName, VariantName, WorkerId

CASES = sorted((Path(__file__).parents[3] / "cases" / "proteus").glob("*.json"))
GPU = DeviceKindName("gpu")
DIGITS = TaskName("digits")


def candidate(variant: str, accuracy: float, points: list[tuple[int, float]]) -> Candidate:
    return Candidate(
        task=DIGITS,
        variant=VariantName(variant),
        model_version="m-v1",
        device_kind=GPU,
        accuracy=accuracy,
        price_usd_per_1k=1.0,
        usd_per_hour=1.0,
        table=LatencyTable(points),
        memory_mib=0.0,
        load_ms=0.0,
        canary=False,
        ready=(),
        hosts=(),
    )


def fleet(count: int) -> list[AvailableKind]:
    return [AvailableKind(name=GPU, count=count, memory_mib=inf, usd_per_hour=1.0)]


def setup(variant: str, task: str = "digits", peak_qps: int = 100, accuracy: float = 0.9) -> Setup:
    return Setup(GPU, TaskName(task), VariantName(variant), accuracy, 100.0, 1, peak_qps)


def by_variant(allocation: Allocation) -> dict[str, int]:
    found: Counter[str] = Counter()
    for made, count in allocation.counts.items():
        found[made.variant] += count
    return dict(found)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text())
    families = [
        Family(DIGITS, f["latency_ms"], -inf if f["floor"] is None else f["floor"], f["qps"])
        for f in case["families"]
    ]
    variants = [
        candidate(v["variant"], v["accuracy"], [tuple(point) for point in v["points"]])
        for v in case["variants"]
    ]
    options = setups(variants, [family.latency_ms for family in families])
    found = allocate(families, options, fleet(case["devices"]), {})
    expect = case["expect"]
    assert (found.beta, by_variant(found)) == (expect["beta"], expect["counts"]), case["why"]
    assert found.accuracy == pytest.approx(expect["accuracy"]), case["why"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 6


def test_beta_is_lowered_by_a_twentieth_to_nothing() -> None:
    assert betas()[:3] == (1.5, 1.45, 1.4)
    assert betas()[-2:] == (0.05, 0.0)


options_of_a_task = st.lists(
    st.tuples(st.integers(50, 400), st.integers(50, 99)), min_size=1, max_size=3
)


@settings(max_examples=30, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.integers(10, 600), options_of_a_task), min_size=1, max_size=2),
    devices=st.integers(1, 3),
)
def test_it_is_as_good_as_brute_force(
    tasks: list[tuple[int, list[tuple[int, int]]]], devices: int
) -> None:
    """The same beta as lowering it step by step finds, and the accuracy within the gap."""
    options = [
        setup(f"v{i}", f"t{t}", peak_qps, accuracy / 100)
        for t, (_, offered) in enumerate(tasks)
        for i, (peak_qps, accuracy) in enumerate(offered)
    ]
    families = [Family(TaskName(f"t{t}"), 100.0, -inf, qps) for t, (qps, _) in enumerate(tasks)]
    found = allocate(families, options, fleet(devices), {})
    beta, value = brute_force(families, options, devices)
    total = sum(family.qps for family in families)
    achieved = sum(made.accuracy * flow for (made, _), flow in found.flows.items())
    assert found.beta == beta
    assert achieved / (max(1.0, beta) * total) >= value * (1 - RELATIVE_GAP) - STAY - 1e-6


def brute_force(families: list[Family], options: list[Setup], devices: int) -> tuple[float, float]:
    """Beta and mean accuracy of the best of all ways to set devices up."""
    total = sum(family.qps for family in families)
    for beta in betas():
        scale, best = max(1.0, beta), -1.0
        for chosen in product(options, repeat=devices):
            served = right = 0.0
            for family in families:
                left = scale * family.qps
                for made in sorted(chosen, key=lambda made: -made.accuracy):
                    if made.task == family.task:
                        part = min(left, made.peak_qps)
                        left, served = left - part, served + part
                        right += part * made.accuracy
            if served >= beta * total - 1e-6:
                best = max(best, right / (scale * total))
        if best >= 0.0:
            return beta, best
    raise AssertionError("at beta 0 everything is feasible")


def test_what_another_setup_beats_is_left_out() -> None:
    """As accurate and as fast on the same kind; and the same batch for a tighter SLO."""
    offered = [
        candidate("good", 0.9, [(1, 10.0)]),
        candidate("slow", 0.8, [(1, 20.0)]),
        candidate("fast", 0.7, [(1, 5.0)]),
    ]
    found = setups(offered, [100.0, 40.0])
    assert [(made.variant, made.latency_ms) for made in found] == [("good", 40.0), ("fast", 40.0)]


def test_devices_keep_what_they_have() -> None:
    """First the same setup, then the same variant, then a device that has it loaded, then any."""
    a, b, c = setup("a"), setup("b"), setup("c")
    names = [WorkerId(f"gpu-{i}") for i in range(4)]
    loaded = {names[0]: "c", names[1]: "a", names[2]: "b", names[3]: "a"}
    devices = {
        name: (GPU, frozenset({(DIGITS, VariantName(variant))})) for name, variant in loaded.items()
    }
    before = {names[1]: a, names[2]: b}
    assert assign({a: 1, b: 1, c: 2}, devices, before) == {
        names[0]: c,
        names[1]: a,
        names[2]: b,
        names[3]: c,
    }
