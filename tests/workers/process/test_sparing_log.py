"""Failures that come with queries: in the log once in full, and then counted."""

import logging
from collections.abc import Callable

import pytest

from workers.process.sparing_log import EVERY_S, MOST_KINDS, SparingLog

NAME = "tests.sparing"


class Sparing:
    """A sparing log whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.sparing = SparingLog(logging.getLogger(NAME), lambda: self.now_s, self._later)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now_s + delay_s, call))

    def fail(self, of: str = "a", why: str = "no", kind: type[Exception] = ValueError) -> None:
        self.sparing.error(of, kind(why), "%s failed: %s", of, why)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        due, self.due = self.due, []
        for at_s, call in due:
            if at_s <= self.now_s:
                call()
            else:
                self.due.append((at_s, call))


@pytest.fixture
def it() -> Sparing:
    return Sparing()


def test_the_first_is_logged_in_full_and_the_others_are_counted(
    it: Sparing, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        it.fail(why=f"no {number}")
    (first,) = caplog.records
    assert (first.levelname, first.getMessage()) == ("ERROR", "a failed: no 0")
    assert first.exc_info is not None
    assert first.filename == "test_sparing_log.py"
    it.wait(EVERY_S)
    _, second = caplog.records
    assert second.getMessage() == "a failed: no 999 [the last of 999 such failures within 60 s]"
    assert second.exc_info is None


def test_as_long_as_they_come_there_is_one_line_a_minute(
    it: Sparing, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        it.fail()
        it.wait(1.0)
    it.wait(EVERY_S)
    counts = [int(str(one.args[-2])) for one in caplog.records[1:] if isinstance(one.args, tuple)]
    assert len(counts) == 10
    assert sum(counts) + 1 == 600  # none is lost


def test_after_a_minute_without_any_the_next_one_is_logged_in_full_again(
    it: Sparing, caplog: pytest.LogCaptureFixture
) -> None:
    it.fail()
    it.wait(EVERY_S)
    it.fail()
    it.fail()
    it.wait(EVERY_S)
    it.wait(EVERY_S)
    it.fail()
    assert [bool(record.exc_info) for record in caplog.records] == [True, True, False, True]


def test_variants_and_kinds_of_failure_are_told_apart(
    it: Sparing, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        it.fail("a")
        it.fail("b")
        it.fail("a", kind=TypeError)
        it.sparing.warning("a", "%s is slow", "a")
    assert [record.getMessage() for record in caplog.records] == [
        "a failed: no", "b failed: no", "a failed: no", "a is slow",
    ]  # fmt: skip
    assert caplog.records[3].levelname == "WARNING"


def test_kinds_without_end_take_neither_lines_nor_memory(
    it: Sparing, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10 * MOST_KINDS):
        it.fail(f"v{number}")
    assert len(caplog.records) <= MOST_KINDS + 1
    assert len(it.sparing._kinds) <= MOST_KINDS + 1
    it.wait(2 * EVERY_S)
    it.fail("new")
    assert caplog.records[-1].getMessage() == "new failed: no"
    assert len(it.sparing._kinds) <= 2
