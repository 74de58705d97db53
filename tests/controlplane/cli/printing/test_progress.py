"""Progress in a log: a line for each step, and now and then one of what happens within it."""

import re

import pytest

from controlplane.building.types import Progress
from controlplane.cli.progress import PlainLines, ProgressStyle, shown


class Log:
    """Lines of a log, and a clock."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.now_s = 100.0
        self.lines = PlainLines(lambda: self.now_s)
        self._capsys = capsys

    def step(self, done: int, message: str, step: str = "build") -> None:
        self.lines.show(Progress(step=step, done=done, total=9, message=message))

    def after(self, seconds: int) -> list[str]:
        """What is printed while so many seconds pass."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.lines.look()
        return self._capsys.readouterr().err.splitlines()


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Log:
    return Log(capsys)


def test_each_step_is_a_line_at_once(log: Log) -> None:
    log.step(0, "checking")
    log.step(1, "building a")
    log.step(1, "within a")
    assert log.after(0) == ["[0/9] checking", "[1/9] building a"]


def test_what_happens_within_a_step_is_told_every_ten_seconds(log: Log) -> None:
    log.step(1, "measuring a")
    log.step(1, "measuring a: 2 threads")
    assert log.after(9) == ["[1/9] measuring a"]
    log.step(1, "measuring a: 1 threads")
    assert log.after(1) == ["[1/9] measuring a: 1 threads (10 s so far)"]
    log.step(1, "measuring what memory it takes")
    assert log.after(10) == ["[1/9] measuring what memory it takes (20 s so far)"]


def test_a_silent_step_says_that_it_goes_on_later_and_later(log: Log) -> None:
    log.step(1, "building a")
    said = log.after(200)[1:]
    assert said == [f"[1/9] building a ({at} s so far)" for at in (10, 30, 70, 130, 190)]
    log.step(2, "building b")
    assert log.after(10) == ["[2/9] building b", "[2/9] building b (10 s so far)"]


def test_many_small_steps_are_summed_up(log: Log) -> None:
    for done in range(1, 9):
        log.step(done, f"read {done} of 9 MiB", "check")
    assert log.after(0) == ["[1/9] read 1 of 9 MiB"]
    assert log.after(10) == ["[8/9] read 8 of 9 MiB (10 s so far)"]
    log.step(9, "read 9 of 9 MiB", "check")
    assert log.after(0) == ["[9/9] read 9 of 9 MiB"]


def test_of_small_steps_that_take_long_there_is_a_line_now_and_then(log: Log) -> None:
    said = []
    for done in range(1, 9):
        log.step(done, f"read {done} of 9 MiB", "check")
        said += log.after(4)
    assert [line.split()[0] for line in said] == ["[1/9]", "[3/9]", "[5/9]", "[8/9]"]


def test_another_kind_of_step_is_a_line_at_once(log: Log) -> None:
    log.step(1, "checking", "check")
    log.step(2, "building a")
    log.step(3, "storing", "store")
    assert log.after(0) == ["[1/9] checking", "[2/9] building a", "[3/9] storing"]


def test_nothing_is_said_once_all_is_done(log: Log) -> None:
    log.step(9, "registered")
    assert log.after(100) == ["[9/9] registered"]


def test_what_looks_ends_with_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(ProgressStyle.PLAIN) as show:
        show(Progress(step="build", done=0, total=1, message="building a"))
    assert capsys.readouterr().err == "[0/1] building a\n"


LONG = (
    "judging resnet-large-v12-onnx-int8-percentile on cpu-16: 9,600 of 10,000 rows, about 12 min"
    " until all are judged"
)


@pytest.mark.parametrize(("total", "left"), [(9, False), (100, True)])
def test_on_a_narrow_terminal_nothing_of_a_long_message_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], total: int, left: bool
) -> None:
    for name, value in (("TTY_COMPATIBLE", "1"), ("COLUMNS", "80"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    with shown(ProgressStyle.BAR) as show:
        show(Progress(step="measure", done=2, total=total, message=LONG))
    drawn = re.sub(
        r"\x1b\[[0-9;?]*[A-Za-z]|[\u2500-\u28ff]|\d:\d\d:\d\d|-:--:--", "", capsys.readouterr().err
    )
    shown_left = "left" in drawn.split()
    letters = "".join(word for word in drawn.split() if word != "left")  # words may be broken
    assert ("".join(LONG.split()) in letters, shown_left) == (True, left)
