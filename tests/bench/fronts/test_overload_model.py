"""An overload in virtual time: what is asked too much hardly costs those that are answered."""

import asyncio
from functools import partial

import pytest

from tests.bench.fronts.overload_model import Load, Model, play

CAPACITY = 400.0
SECONDS = 3.0


def played(times: float) -> Model:
    def poisson(made: Model, until_ms: float) -> None:
        made.poisson(times * CAPACITY, until_ms)

    return asyncio.run(play(Load("", poisson), SECONDS, seed=0))


@pytest.mark.parametrize(("times", "part"), [(2.0, 0.95), (3.0, 0.93), (10.0, 0.83)])
def test_most_of_the_core_is_left_to_answers(times: float, part: float) -> None:
    made = played(times)
    assert made.counts.ends["in time"] > part * SECONDS * CAPACITY
    assert made.counts.ends["late"] < 0.03 * made.counts.ends["in time"]


def test_it_is_seldom_looked_in_vain_whether_there_is_room() -> None:
    made = played(10.0)
    ways = made.counts.ways
    assert ways["looked"] < 0.35 * ways["sent"]
    assert ways["ordinary"] < 0.05 * ways["at once"]


def test_those_that_retry_at_once_get_nearly_what_patient_ones_get() -> None:
    def closed(waits: bool, made: Model, _: float) -> None:
        made.closed(32, float if waits else lambda _: 0.0)

    at_once, patient = (
        asyncio.run(play(Load("", partial(closed, waits)), SECONDS, seed=0))
        for waits in (False, True)
    )
    assert at_once.counts.ends["in time"] > 0.92 * patient.counts.ends["in time"]
