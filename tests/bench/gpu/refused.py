"""Why the simulator refused queries, one by one: ``tests.bench.gpu.slow_loads --why``."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from planner.simulation.engine import Engine
from planner.simulation.fleet import Replica, Worker
from planner.simulation.loads import Loads
from planner.types import Query
from variants.types import ReplicaState, VariantKey

REASONS = (
    "asked for the first time", "being loaded", "no turn", "not worth it", "has left", "no time",
)  # fmt: skip
"""What was so before the query came; "no turn" and "not worth it" are of the query before it."""


class Reasons:
    """What became of each variant so far, and why queries were refused."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.known: dict[VariantKey, str] = {}

    def row(self) -> str:
        return " | ".join(str(self.counts[reason]) for reason in REASONS)


@contextmanager
def noted() -> Iterator[Reasons]:
    """Whoever simulates meanwhile notes why."""
    reasons = Reasons()
    arrive: Callable[[Engine, Query], None] = Engine._arrive
    begin: Callable[..., Replica | None] = Loads.begin
    unload: Callable[[Loads, Replica], None] = Loads.unload

    def arrived(engine: Engine, query: Query) -> None:
        (key,) = {
            key for offers in engine.fleet.offers.values() for key in offers if key[0] == query.task
        }
        held = [w.replicas[key] for w in engine.fleet.workers.values() if key in w.replicas]
        reason = reasons.known.get(key, REASONS[0])
        if any(replica.state is ReplicaState.READY for replica in held):
            reason = "no time"
        elif held:
            reason = "being loaded"
        before = sum(engine.tally.rejected)
        arrive(engine, query)
        reasons.known.setdefault(key, "no turn")
        reasons.counts[reason] += sum(engine.tally.rejected) - before

    def begun(
        loads: Loads, worker: Worker, key: VariantKey, *, waiting: bool | None = None, **more: Any
    ) -> Replica | None:
        busy_ms = worker.loading_ms(loads._clock_ms())
        found = begin(loads, worker, key, waiting=waiting, **more)
        if found is None and waiting is not None:
            reasons.known[key] = "no turn" if busy_ms else "not worth it"
        return found

    def unloaded(loads: Loads, replica: Replica) -> None:
        reasons.known[replica.key] = "has left"
        unload(loads, replica)

    with (
        patch.object(Engine, "_arrive", arrived),
        patch.object(Loads, "begin", begun),
        patch.object(Loads, "unload", unloaded),
    ):
        yield reasons
