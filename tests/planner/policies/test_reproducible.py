"""The same seed gives the same result, also in a process in which sets have another order."""

import os
import subprocess
import sys

from planner.policies.registry import POLICIES
from planner.simulate import simulate
from planner.types import Objective
from tests.planner.simulation.builders import Asked, Model, setting, trace

TASKS = ("a", "b", "c", "d")
MODELS = tuple(
    Model(task, name=name, accuracy=accuracy, latency_ms=ms, memory_mib=150.0, load_s=ms / 10)
    for number, task in enumerate(TASKS)
    for name, accuracy, ms in (("low", 0.7, 5.0 + number), ("high", 0.9, 20.0 + 3 * number))
)
"""A device holds six of them, and loads one after the other."""


def outcomes() -> str:
    """What comes of one trace under each policy, a line for each."""
    known = setting(*MODELS, devices=2, objective=Objective.COST, provision_s=1.0, tick_s=5.0)
    asked = trace(
        *(
            Asked(number / 50, 60.0 + 40 * (number % 3), TASKS[number % 7 % 4])
            for number in range(1_000)
        )
    )
    made = [simulate(known, asked, policy, clock=lambda: 0.0) for policy in POLICIES]
    return "\n".join(map(repr, made))


def test_no_policy_goes_by_the_order_of_a_set() -> None:
    code = f"from {__name__} import outcomes; print(outcomes())"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2", "3")
    ]
    one, *others = [process.communicate()[0].splitlines() for process in running]
    assert len(one) == len(POLICIES)
    assert others == [one, one]
