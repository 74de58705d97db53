"""Waiting for variants: until all are there, or no more come."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat

from controlplane.startup.readiness import SETTLED, until_loaded

Index = Sequence[Mapping[str, str]]


def index(ready: int, loading: int = 0) -> Index:
    """Of variants of a bucket, which stand there by the name that is asked as well."""
    states = ["READY"] * ready + ["UNAVAILABLE"] * loading
    return [{"name": name, "state": state} for name in ("texts.8", "texts") for state in states]


TASKS = {"texts.8"}


def asked(
    answers: Sequence[Index | Exception], then: Index
) -> tuple[Callable[[], Index], list[int]]:
    """What answers like this, and the last one for ever; and how often it was asked."""
    coming, asked = chain(answers, repeat(then)), [0]

    def ask() -> Index:
        asked[0] += 1
        answer = next(coming)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask, asked


def never(_wait_s: float) -> bool:
    return False


def test_all_that_are_expected_end_the_wait() -> None:
    ask, times = asked([ConnectionError(), ValueError(), index(0, 3), index(2, 1)], index(3))

    assert (until_loaded(ask, 3, TASKS, never), times) == (3, [5])


def test_what_memory_does_not_hold_is_not_waited_for() -> None:
    ask, times = asked([index(1, 2)], index(2, 1))

    assert (until_loaded(ask, 3, TASKS, never), times) == (2, [2 + SETTLED])


def test_who_is_interrupted_waits_no_longer() -> None:
    ask, times = asked([], index(0, 3))
    waits: list[float] = []

    def stopped(wait_s: float) -> bool:
        waits.append(wait_s)
        return len(waits) > 3

    assert (until_loaded(ask, 3, TASKS, stopped), times[0], waits[0]) == (0, 3, 0.0)


def test_patience_ends() -> None:
    ask, _ = asked([], index(0, 3))

    assert until_loaded(ask, 3, TASKS, never, patience_s=0.0) == 0
