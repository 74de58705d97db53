"""Slow cores are seen by a loop of known work, and runs on them are no times of the variant."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import pytest

from profiler.sandbox.enough import CALM, is_settled
from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.measure import _runs
from profiler.timing.contention import Contention
from profiler.timing.core_speed import FIRST_LOOKS, SLOWER, STEP_S, WAIT_LIMIT_S, CoreSpeed
from profiler.timing.statistics import Round, Sample
from workers.runtimes.protocol import Tensor

CALM_S = 15e-6
SLOW_S = 1.5 * CALM_S


class Loop:
    """Times that were thought up, the last one for ever; it keeps the cores that it ran on."""

    def __init__(self, *times_s: float) -> None:
        self._times: Iterator[float] = chain(
            repeat(CALM_S, FIRST_LOOKS), times_s, repeat(times_s[-1])
        )
        self.cores: list[set[int]] = []

    def __call__(self) -> float:
        self.cores.append(os.sched_getaffinity(0))
        return next(self._times)


def core_speed(*times_s: float, threads: int = 1, slept_s: list[float] | None = None) -> CoreSpeed:
    def sleep(seconds: float) -> None:
        if slept_s is not None:
            slept_s.append(seconds)

    return CoreSpeed(threads, loop_s=Loop(*times_s), sleep=sleep)


def test_a_core_is_slow_that_takes_longer_than_the_quickest_did() -> None:
    one = core_speed(CALM_S, (SLOWER - 0.01) * CALM_S, (SLOWER + 0.01) * CALM_S)
    assert [one.slow() for _ in range(3)] == [False, False, True]


def test_a_quicker_core_than_before_is_what_others_are_compared_with() -> None:
    one = core_speed(0.7 * CALM_S, CALM_S)
    assert [one.slow(), one.slow()] == [False, True]


def test_it_waits_for_calm() -> None:
    slept_s: list[float] = []
    assert not core_speed(SLOW_S, SLOW_S, CALM_S, slept_s=slept_s).wait()
    assert slept_s == [STEP_S] * 2


def test_its_patience_ends_for_good() -> None:
    slept_s: list[float] = []
    one = core_speed(SLOW_S, slept_s=slept_s)
    assert one.wait()
    assert sum(slept_s) == pytest.approx(WAIT_LIMIT_S, abs=STEP_S)
    slept_s.clear()
    assert one.wait()
    assert not slept_s


def test_threads_that_need_every_core_are_slow_if_any_is() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("there is one core")
    loop = Loop(*[CALM_S] * (len(cores) - 1), SLOW_S, CALM_S)
    one = CoreSpeed(len(cores), loop_s=loop)
    loop.cores.clear()
    assert [one.slow(), one.slow()] == [True, False]
    assert loop.cores == [{core} for core in sorted(cores)] * 2
    assert os.sched_getaffinity(0) == cores


class Nothing:
    """A runtime whose batch takes a moment."""

    def load(self) -> None: ...

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [sum(each.sum() for each in inputs)]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("loop_s", "alone", "beside"), [((CALM_S,), True, False), ((SLOW_S,), False, True)]
)
def test_runs_on_slow_cores_had_others_beside_them(
    loop_s: tuple[float, ...], alone: bool, beside: bool
) -> None:
    found = _runs(Nothing(), [], 1_000, 0.02, 4, 10_000, core_speed(*loop_s))
    assert bool(found[Contention.NONE]) is alone
    assert bool(found[Contention.BESIDE]) is beside


def test_more_rounds_are_made_until_some_were_alone_but_not_for_ever() -> None:
    limits = MeasureLimits(rounds=3)
    beside, alone = Round((), (0.001,) * 40), Round((0.001,) * 40)
    assert is_settled(Sample(1, (alone,) * 3), limits)
    assert not is_settled(Sample(1, (beside,) * 3), limits)
    assert is_settled(Sample(1, (beside,) * 3 + (alone,) * 3), limits)
    assert is_settled(Sample(1, (beside,) * CALM * 3), limits)
