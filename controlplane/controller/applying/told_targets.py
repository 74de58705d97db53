"""Which replicas were told their targets, so that a worker is sent only what is new to it."""

from collections.abc import Collection, Mapping
from math import isclose
from typing import NamedTuple

from planner.types import ReplicaKey, ReplicaTarget
from variants.types import CatalogState

SAME_RATE = 0.1
"""A rate that differs by no more than this part from what was told is not told again: it moves a
little with every count, and telling costs a message and a look at the whole queue."""


class Told(NamedTuple):
    """What a worker is told of one of its replicas."""

    target: ReplicaTarget
    of: CatalogState
    """The catalog: its latencies are sent together with the target."""

    def says(self, wanted: "Told") -> bool:
        """Whether somebody who was told this need not be told ``wanted``."""
        rate_qps = wanted.target.qps
        return isclose(self.target.qps, rate_qps, rel_tol=SAME_RATE) and wanted == self._replace(
            target=self.target._replace(qps=rate_qps)
        )


class ToldTargets:
    """The targets of the newest plan, and what the workers were told of them.

    A controller that starts tells every replica, because it does not know what its predecessor
    told.
    """

    def __init__(self) -> None:
        self._wanted: dict[ReplicaKey, Told] = {}
        self._told: dict[ReplicaKey, Told] = {}

    def decided(self, targets: Mapping[ReplicaKey, ReplicaTarget], of: CatalogState) -> None:
        """Go by these targets from now on, and by the latencies of this catalog."""
        self._wanted = {key: Told(target, of) for key, target in targets.items()}

    def placed(self, key: ReplicaKey) -> bool:
        """Whether the plan places a replica."""
        return key in self._wanted

    def of(self, key: ReplicaKey) -> Told:
        """What is to be told of a replica that the plan places."""
        return self._wanted[key]

    def told(self, key: ReplicaKey, told: Told) -> None:
        """A worker was told this, and has answered."""
        self._told[key] = told

    def untold(self, ready: Collection[ReplicaKey]) -> list[ReplicaKey]:
        """Replicas that are placed and ready, and of which the worker was told something else.

        What was told of replicas that are not ready any more is forgotten: a variant that is loaded
        again has to be told again.
        """
        self._told = {key: told for key, told in self._told.items() if key in ready}
        return [
            key
            for key, wanted in self._wanted.items()
            if key in ready and not ((told := self._told.get(key)) and told.says(wanted))
        ]
