"""``modelless top``: frames that fit, and a terminal that is left as it was."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from controlplane.cli.screen.frame import frame
from controlplane.cli.screen.readings import Rates, Reading
from controlplane.cli.screen.terminal import ENTER, LEAVE
from tests.controlplane.cli.asking.answering import Answering
from tests.controlplane.cli.shell import Shell
from variants.errors import StateUnavailable
from variants.types import Event

ROOT = Path(__file__).parents[4]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PATIENCE_S = 120.0


def replica(variant: str, **more: Any) -> dict[str, Any]:
    return {"task": "digits", "variant": variant, "state": "ready", "queued": 0} | more


def reading(at_s: float = 0.0, **more: Any) -> Reading:
    """Two workers of one kind, one of which loads; a task of which some queries were refused."""
    quick = replica("quick", batches=40, queued=3, latency=[[1, 0.5, 1.0], [8, 2.0, 4.0]])
    slow = replica("slow", batches=4, latency=[])
    worker = {"device_kind": "cpu-2", "busy_ratio": 0.4, "reserved_mib": 30.0}
    worker |= {"memory_mib": 1_000.0, "backlog_us": 12_000}
    lately = {"requests": 120, "late": 1, "refused": 5, "share_met": 0.95}
    given: dict[str, Any] = {
        "plan": {
            "version": 7,
            "created_at": "2026-01-02T03:00:00+00:00",
            "standing": {
                "sentence": "As planned: 2 workers are running.",
                "kinds": [{"device_kind": "cpu-2", "wanted": 3}],
            },
        },
        "workers": [
            worker | {"worker": "a", "replicas": [quick, slow]},
            worker | {"worker": "b", "busy_ratio": 0.8, "replicas": [quick | {"state": "loading"}]},
        ],
        "slo": {
            "lately_s": 60.0,
            "tasks": [
                {
                    "task": "digits",
                    "requests": 1_000,
                    "lately": lately | {"refusals": {"COLD": 1, "OVERLOADED": 4}},
                }
            ],
            "standing": {"sentence": "digits: 6 of 120 queries missed their SLO."},
        },
        "events": [
            {"seq": 1, "at": "2026-01-02T03:00:00+00:00", "kind": "worker_joined", "subject": "a",
             "message": "it is there"},
            {"seq": 2, "at": "2026-01-02T03:01:00+00:00", "kind": "planned", "subject": "7",
             "message": "\x1b[31mred"},
        ],
    }  # fmt: skip
    past = {"task": "digits", "p50_ms": [1.5, None], "p95_ms": [12.25, None]}
    given["history"] = {"begins_s": 0.0, "step_s": 10.0, "tasks": [past]}
    return Reading(at_s=at_s, url="http://host", **(given | more))


def words(lines: list[str], first: str) -> list[str]:
    """The line that begins with a word, without its spaces."""
    return next(line.split() for line in lines if line.startswith(first))


@pytest.mark.parametrize(("gone", "told"), [(40, True), (5, False)])
def test_clients_that_do_not_wait_are_told_where_they_are_many(gone: int, told: bool) -> None:
    now = reading()
    assert now.slo is not None
    now.slo["tasks"][0]["lately"] |= {
        "gave_up": gone, "share_gave_up": gone / (120 + gone), "gave_up_after_ms": 210.0,
        "gave_up_slo_ms": 1_000.0,
    }  # fmt: skip
    shown = " ".join(frame(now, Rates(), NOW, 160, 40))
    assert ("COLD 1, 25.00 % of clients gave up after 210 of 1,000 ms" in shown) is told
    assert ("gave up" in shown) is told


def test_a_frame_shows_standing_tasks_kinds_variants_and_events() -> None:
    rates = Rates()
    rates.add(reading())
    later = reading(at_s=2.0)
    assert later.slo is not None
    later.slo["tasks"][0]["requests"] = 1_030
    rates.add(later)

    lines = frame(later, rates, NOW, 120, 40)

    assert lines[0].startswith("modelless at http://host")
    assert lines[0].endswith("03:04:05 UTC")
    assert "As planned: 2 workers are running." in lines
    assert "digits: 6 of 120 queries missed their SLO." in lines
    task = words(lines, "digits ")
    assert task == [
        "digits",
        "15.0",
        "1.50",
        "12.2",
        "2.0",
        "95.00",
        "%",
        "1",
        "5",
        "OVERLOADED",
        "4,",
        "COLD",
        "1",
    ]
    kind = words(lines, "cpu-2")
    assert " ".join(kind) == "cpu-2 2 of 3 60 % 60 of 2,000 2 (+1 loading) 6 12 ms"
    quick = words(lines, "digits/quick")
    assert " ".join(quick) == "digits/quick 1 0.0 3 1: 0.500 / 1.00 8: 2.00 / 4.00"
    events = [line.partition("  ")[2] for line in lines[-2:]]
    assert events == ["planned  7: ?[31mred", "worker joined  a: it is there"]


@pytest.mark.parametrize("width", [1, 20, 60, 200])
@pytest.mark.parametrize("height", [1, 5, 12, 24, 80])
def test_a_frame_fits_its_terminal(width: int, height: int) -> None:
    many = [replica(f"variant-{number}-with-a-long-name", batches=number) for number in range(50)]
    workers = reading().workers
    assert workers is not None
    crowded = reading(workers=[dict(workers[0]) | {"replicas": many}])
    lines = frame(crowded, Rates(), NOW, width, height, stale="no gateway answers " * 20)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    if (width, height) == (200, 24):
        assert any(line.startswith("and 4") for line in lines), "it says how many are left out"


def test_a_frame_says_what_it_does_not_know() -> None:
    lost: dict[str, Any] = dict.fromkeys(("plan", "workers", "slo", "events"))
    lines = frame(reading(**lost, away="the database is away"), Rates(), NOW, 120, 40, stale="gone")
    assert "the plan is not known" in lines[0]
    assert "NOT UP TO DATE: gone" in lines
    assert "Not all is known: the database is away" in lines
    assert "TASK: none" in lines


def test_a_gateway_that_counts_from_0_again_has_no_negative_rate() -> None:
    rates = Rates()
    rates.add(reading())
    again = reading(at_s=1.0)
    assert again.slo is not None
    again.slo["tasks"][0]["requests"] = 3
    rates.add(again)
    assert rates.queries("digits") == 0.0
    assert rates.queries("other") == 0.0
    assert Rates().queries("digits") is None


def test_one_frame_is_printed_where_it_is_no_terminal(gateway: Answering, shell: Shell) -> None:
    at = "2026-01-01T00:00:00+00:00"
    gateway.catalog.add_event(Event(at=at, kind="worker_lost", subject="cpu-4-b", message="gone"))
    for options in ((), ("--once",)):
        ended = shell("top", *options, url=gateway.url)
        assert (ended.code, ended.err) == (0, "")
        assert f"modelless at {gateway.url}" in ended.out
        assert "digits/mlp-v1-onnx-int8" in ended.out
        assert "worker lost  cpu-4-b: gone" in ended.out
        assert "\x1b" not in ended.out
        # Rates are there as well: nothing was asked between two looks.
        variant = words(ended.out.splitlines(), "digits/mlp-v1-onnx-int8")
        assert variant[:3] == ["digits/mlp-v1-onnx-int8", "1", "0.0"]


def test_one_frame_on_a_terminal_is_as_wide_as_it(
    gateway: Answering, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # for Rich a terminal
    monkeypatch.setenv("COLUMNS", "60")
    lines = shell("top", "--once", url=gateway.url).out.splitlines()
    assert max(map(len, lines)) == 60
    assert any(line.endswith("…") for line in lines)


def test_what_the_database_knows_may_be_missing(
    gateway: Answering, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StateUnavailable("the database does not answer")

    monkeypatch.setattr(gateway.catalog, "latest_plan", away)
    monkeypatch.setattr(gateway.catalog, "events", away)
    ended = shell("top", "--once", url=gateway.url)
    assert ended.code == 0
    assert "Not all is known: the database does not answer" in ended.out
    assert "digits/mlp-v1-onnx-int8" in ended.out


def test_without_a_gateway_there_is_nothing_to_watch(shell: Shell) -> None:
    assert shell("top", url="http://127.0.0.1:1").code == 3


# -- on a terminal --------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: "subprocess.Popen[bytes]", end: int, attributes: list[Any]) -> None:
        self.command = command
        self.end = end
        self.before = attributes
        self.shown = b""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read(1.0)

    def ended(self) -> int:
        code = self.command.wait(PATIENCE_S)
        while self._read(0.0):
            pass
        return code

    def _read(self, seconds: float) -> bytes:
        if not select.select([self.end], (), (), seconds)[0]:
            return b""
        with suppress(OSError):  # nobody writes there any more
            found = os.read(self.end, 65_536)
            self.shown += found
            return found
        return b""


@contextmanager
def on_a_terminal(url: str, state_dir: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    settings = {"MODELLESS_STATE_DIR": str(state_dir), "MODELLESS_URL": url, "TERM": "xterm"}
    command = subprocess.Popen(
        [sys.executable, "-m", "controlplane.cli.main", "top"],
        cwd=ROOT,
        env=os.environ | settings,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        terminal = Terminal(command, ours, before)
        yield terminal
        assert termios.tcgetattr(theirs) == before
    finally:
        command.kill()
        command.wait()
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "said"), [("q", 0, ""), ("interrupt", 130, "interrupted: "), ("end", 130, "")]
)
def test_a_terminal_is_left_as_it_was(
    gateway: Answering, tmp_path: Path, how: str, code: int, said: str
) -> None:
    with on_a_terminal(gateway.url, tmp_path) as terminal:
        terminal.until("digits/mlp-v1-onnx-int8")
        if how == "q":
            os.write(terminal.end, b"q")
        else:
            terminal.command.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)
        assert terminal.ended() == code
        shown = terminal.shown.decode()

    _, entered, drawn = shown.partition(ENTER)
    drawn, left, after = drawn.partition(LEAVE)
    assert (entered, left) == (ENTER, LEAVE)
    assert "cpu-4" in drawn
    assert said in after
    assert "Traceback" not in shown


@pytest.mark.slow
def test_a_gateway_that_goes_away_is_told_and_waited_for(tmp_path: Path) -> None:
    with Answering(tmp_path) as gateway, on_a_terminal(gateway.url, tmp_path) as terminal:
        terminal.until("digits/mlp-v1-onnx-int8")
        gateway.__exit__()
        terminal.until("NOT UP TO DATE")
        terminal.command.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
