"""What gateways say of the workers that serve, as `modelless upgrade` asks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What gateways say: workers with what is loaded, and where the plan puts what."""

    workers: Mapping[str, frozenset[tuple[str, str]]]
    """Task and variant of all that is ready at each worker that takes queries."""
    planned: Mapping[str, frozenset[tuple[str, str]]]


def serving(workers: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> Serving:
    """What ``/v1/workers`` and ``/v1/plan`` say."""
    planned: dict[str, set[tuple[str, str]]] = {}
    for row in plan.get("placements", ()):
        planned.setdefault(row["worker"], set()).add((row["task"], row["variant"]))
    return Serving(
        workers={
            one["worker"]: frozenset(
                (row["task"], row["variant"]) for row in one["replicas"] if row["state"] == "ready"
            )
            for one in workers
            if not one["draining"]
        },
        planned={worker: frozenset(held) for worker, held in planned.items()},
    )
