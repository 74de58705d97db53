"""Waiting for nodes: what is told meanwhile, and how it ends."""

from collections.abc import Iterator

import pytest

from controlplane.startup.awaited_nodes import LOOK_EVERY_S, MOST_S, await_nodes


class Hours:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now(self) -> float:
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds


def waited(expected: int, counts: Iterator[int]) -> tuple[str, list[str], float]:
    """What is said in the end, what was told before, and for how long it waited."""
    hours, told = Hours(), list[str]()
    remark = await_nodes(
        expected, lambda: next(counts), told.append, now_s=hours.now, pause=hours.pass_by
    )
    return remark, told, hours.now_s - 100.0


def forever(count: int) -> Iterator[int]:
    while True:
        yield count


@pytest.mark.parametrize(("expected", "there"), [(0, 0), (2, 2), (2, 3)])
def test_nothing_is_waited_for_where_enough_are_there(expected: int, there: int) -> None:
    assert waited(expected, forever(there)) == ("", [], 0.0)


def test_each_change_is_told_once_until_all_have_joined() -> None:
    remark, told, seconds = waited(3, iter([0, 0, 1, 1, 0, 2, 3]))

    assert remark == ""
    assert told == [
        f"{count} of 3 nodes have joined; waiting for the others" for count in (0, 1, 0, 2)
    ]
    assert seconds == 6 * LOOK_EVERY_S


@pytest.mark.parametrize("there", [0, 1])
def test_nodes_that_never_come_are_waited_for_in_bounded_time(there: int) -> None:
    remark, told, seconds = waited(2, forever(there))

    assert remark == (
        f"{there} of 2 nodes have joined within 10 minutes (MODELLESS_NODES): "
        "the start goes on without the others"
    )
    assert len(told) == 1
    assert seconds == MOST_S


def test_an_interrupt_ends_the_wait() -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await_nodes(1, lambda: 0, lambda _: None, now_s=lambda: 0.0, pause=interrupted)
