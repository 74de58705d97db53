"""What is made of what Serve says of replicas; that Serve says it is shown by integration tests."""

from collections.abc import Mapping
from typing import Any

import pytest

from controlplane.cluster.replicas import Deployment, ServeReplicas
from variants.errors import ClusterUnavailable

WORKERS = Deployment(application="workers", name="worker", built=None)


class Told(ServeReplicas):
    """Serve says the states of some replicas; those that run say their generation."""

    def __init__(self, **states: str) -> None:
        super().__init__()
        self.states = states

    def _found(self, deployment: Deployment) -> Mapping[str, Any]:
        replicas = [{"replica_id": one, "state": state} for one, state in self.states.items()]
        return {"replicas": replicas, "target_num_replicas": 2, "message": ""}

    def _answers(self, deployment: Deployment, question: str, *arguments: str) -> list[Any]:
        running = [one for one, state in self.states.items() if state == "RUNNING"]
        return [{"replica": one, "generation": "old"} for one in running]


def test_those_that_run_and_those_that_leave() -> None:
    now = Told(a="RUNNING", b="STARTING", c="STOPPING").look(WORKERS)
    assert (now.target, dict(now.generations), now.going) == (2, {"a": "old"}, 1)


@pytest.mark.parametrize("state", ["UPDATING", "RECOVERING"])
def test_one_that_runs_and_says_nothing_for_a_moment_is_waited_for(state: str) -> None:
    """`modelless upgrade` would take it for one that is missing, and never replace it."""
    with pytest.raises(ClusterUnavailable, match="takes in a configuration"):
        Told(a="RUNNING", b=state).look(WORKERS)
