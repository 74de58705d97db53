"""What simulated workers say of what may leave them is what real ones would say."""

from dataclasses import replace

import pytest

from planner.eviction.displacement import Rung, ladder
from planner.eviction.victims import MIN_RESIDENCY_S, is_protected
from planner.simulate import simulate
from planner.simulation.fleet import Worker
from planner.simulation.memory import Memories
from tests.planner.simulation.builders import Asked, Model, setting, trace


@pytest.mark.parametrize("rule", ["modelless", "lru"])
def test_a_ladder_is_that_of_the_residents(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Without the objects that ``planner.eviction`` takes, which would be made for each look."""
    told, protected = [], []
    quick = Memories.ladder

    def looked(self: Memories, worker: Worker, now_ms: float) -> tuple[Rung, ...]:
        found = quick(self, worker, now_ms)
        residents, now_s = self._residents(worker, now_ms), now_ms / 1_000
        losses_s = None
        if rule != "modelless":
            losses_s = {r.key: r.popularity for r in residents}
        else:
            assert found == ladder(residents, now_s, rule)
        assert len(found) == len(ladder(residents, now_s, rule, losses_s=losses_s))
        told.append(len(found))
        protected.extend([r for r in residents if is_protected(r, now_s, MIN_RESIDENCY_S)])
        return found

    monkeypatch.setattr(Memories, "ladder", looked)
    models = [Model(name, memory_mib=100 + 20 * at) for at, name in enumerate("abcdefghij")]
    asked = [Asked(at / 10, 3_000.0, "abcdefghij"[at * at % 10]) for at in range(1, 600)]
    played = replace(setting(*models, devices=2, memory_mib=420), eviction=rule)
    simulate(played, trace(*asked), "modelless", clock=lambda: 0.0)
    assert max(told) > 1
    assert protected
