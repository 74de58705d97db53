"""Our own policy: what it knows of the catalog before the first query."""

from planner.policies.modelless import steps_of
from planner.selection.snapshot import build_snapshot
from planner.simulate import offers_of
from planner.simulation.fleet import Fleet
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import Stage, TaskName


def test_the_steps_of_slo_classes_are_those_that_gateways_count_by() -> None:
    known = catalog(
        [variant("a", 0.9), variant("b", 0.8), variant("new", 0.99), variant("c", 0.7, "red")],
        [
            profile("a", 5.0, kind="gpu"),
            profile("b", 5.0),
            profile("b", 2.0, kind="gpu"),
            profile("new", 5.0),
            profile("c", 5.0, task="red"),
        ],
        kinds=[kind("cpu-1"), kind("gpu")],
        stages={"new": Stage.CANARY},
    )
    steps = steps_of(Fleet(offers_of(known), ()))

    assert steps[TaskName("red")] == (0.7,)
    assert steps == {
        name: view.accuracies for name, view in build_snapshot(known, ()).tasks.items()
    }
    assert sorted(len(found) for found in steps.values()) == [1, 2]
