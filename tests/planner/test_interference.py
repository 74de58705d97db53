"""By what part batches take longer beside other variants, from what workers say."""

import pytest

from planner.interference import ENOUGH, MOST, MOST_SEEN, STEP, Beside, Interference
from variants.types import DeviceKindName

CPU, GPU = DeviceKindName("cpu-1"), DeviceKindName("gpu")


def test_without_a_word_there_is_none() -> None:
    found = Interference()
    assert not found.look([])
    assert not found.look([Beside(CPU, 1.0, 0), Beside(CPU, 3.0, ENOUGH - 1)])
    assert found.parts == {}


def test_a_kind_has_what_its_workers_say_together() -> None:
    """Three words of 20 % and one of a variant that hardly ran; another kind has its own."""
    found = Interference()
    said = [Beside(CPU, 1.2, 100)] * 3 + [Beside(CPU, 4.0, 1), Beside(GPU, 1.5, ENOUGH)]
    assert found.look(said)
    assert found.parts == {CPU: pytest.approx(0.2), GPU: pytest.approx(0.5)}
    assert not found.look(said)


def test_no_word_weighs_more_than_so_many_batches() -> None:
    found = Interference()
    found.look([Beside(CPU, 2.0, 10**9), Beside(CPU, 1.0, MOST_SEEN)])
    assert found.parts == {CPU: pytest.approx(0.4)}


@pytest.mark.parametrize(
    ("times", "part"), [(0.5, 0.0), (1.02, 0.0), (1.07, 0.05), (50.0, MOST)], ids=str
)
def test_it_is_bounded_and_told_in_steps(times: float, part: float) -> None:
    found = Interference()
    assert found.look([Beside(CPU, times, ENOUGH)]) == (part > 0.0)
    assert found.parts.get(CPU, 0.0) == pytest.approx(part)


def test_plans_do_not_follow_every_wobble() -> None:
    found = Interference()
    found.look([Beside(CPU, 1.2, ENOUGH)])
    assert not found.look([Beside(CPU, 1.2 + 0.7 * STEP, ENOUGH)])
    assert found.look([Beside(CPU, 1.2 + STEP, ENOUGH)])
    assert found.parts == {CPU: pytest.approx(0.25)}


def test_what_was_seen_stays_while_nothing_can_be_seen() -> None:
    found = Interference()
    found.look([Beside(CPU, 1.5, ENOUGH)])
    assert not found.look([])
    assert found.parts == {CPU: pytest.approx(0.5)}
    assert found.look([Beside(CPU, 1.0, ENOUGH)])
    assert found.parts == {}
