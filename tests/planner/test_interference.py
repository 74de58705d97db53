"""By what part batches take longer beside other variants, from what workers say."""

import pytest

from planner.interference import ENOUGH, MOST, MOST_SEEN, STEP, Beside, Interference
from variants.types import DeviceKindName

CPU, GPU = DeviceKindName("cpu-1"), DeviceKindName("gpu")


def beside(
    times: float, batches: int = ENOUGH, kind: DeviceKindName = CPU, ms: float = 10.0
) -> Beside:
    return Beside(kind, times, batches, ms)


def test_without_a_word_there_is_none() -> None:
    found = Interference()
    assert not found.look([])
    assert not found.look([beside(1.0, 0), beside(3.0, ENOUGH - 1)])
    assert found.parts == {}


def test_a_kind_has_what_its_workers_say_together() -> None:
    """Three words of 20 % and one of a variant that hardly ran; another kind has its own."""
    found = Interference()
    said = [beside(1.2, 100)] * 3 + [beside(4.0, 1), beside(1.5, kind=GPU)]
    assert found.look(said)
    assert found.parts == {CPU: pytest.approx(0.2), GPU: pytest.approx(0.5)}
    assert not found.look(said)


def test_no_word_weighs_more_than_so_many_batches() -> None:
    found = Interference()
    found.look([beside(2.0, 10**9), beside(1.0, MOST_SEEN)])
    assert found.parts == {CPU: pytest.approx(0.4)}


def test_what_takes_more_of_the_time_counts_more() -> None:
    """Four tiny variants live in the caches and lose them; the one that takes the time does not."""
    found = Interference()
    tiny = [beside(2.0, MOST_SEEN, ms=0.05)] * 4
    assert not found.look([*tiny, beside(1.02, MOST_SEEN, ms=20.0)])
    assert found.look([*tiny, beside(1.2, MOST_SEEN, ms=20.0)])
    assert found.parts == {CPU: pytest.approx(0.2)}


def test_a_few_long_batches_are_not_believed_for_many_short_ones() -> None:
    found = Interference()
    assert not found.look([beside(1.1, MOST_SEEN, ms=0.05), beside(3.0, 3, ms=20.0)])
    assert found.parts == {}


@pytest.mark.parametrize(
    ("times", "part"), [(0.5, 0.0), (1.02, 0.0), (1.07, 0.05), (50.0, MOST)], ids=str
)
def test_it_is_bounded_and_told_in_steps(times: float, part: float) -> None:
    found = Interference()
    assert found.look([beside(times)]) == (part > 0.0)
    assert found.parts.get(CPU, 0.0) == pytest.approx(part)


def test_plans_do_not_follow_every_wobble() -> None:
    found = Interference()
    found.look([beside(1.2)])
    assert not found.look([beside(1.2 + 0.7 * STEP)])
    assert found.look([beside(1.2 + STEP)])
    assert found.parts == {CPU: pytest.approx(0.25)}


def test_what_was_seen_stays_while_nothing_can_be_seen() -> None:
    found = Interference()
    found.look([beside(1.5)])
    assert not found.look([])
    assert found.parts == {CPU: pytest.approx(0.5)}
    assert found.look([beside(1.0)])
    assert found.parts == {}
