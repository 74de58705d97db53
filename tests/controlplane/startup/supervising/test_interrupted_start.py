"""A start that is interrupted, or whose terminal is closed, and who hears of an end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType

import psutil
import pytest
import typer

from controlplane.cli import starting
from controlplane.cli.outcome import INTERRUPTED
from controlplane.cluster.one_machine import template_process
from controlplane.live_state import ENDING, opened
from controlplane.settings import Settings
from controlplane.startup import interruption, valkey
from controlplane.startup import supervisor as startup
from controlplane.startup.interruption import ONE_SIGNAL_S, Interruption
from controlplane.startup.presence import running
from controlplane.startup.processes import deaf_to_hang_ups, is_alive
from controlplane.startup.supervisor import Supervisor
from controlplane.startup.valkey import announce_end
from tests.controlplane.startup.supervising.supervised import supervisor


def test_sigterm_before_ray_ends_a_start_like_ctrl_c(settings: Settings) -> None:
    keeper = supervisor(settings)
    keeper.claim()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    keeper.stop()


def test_a_terminal_that_is_closed_ends_a_start_like_ctrl_c(settings: Settings) -> None:
    signal.signal(signal.SIGHUP, signal.default_int_handler)  # the test's own end is not meant
    keeper = supervisor(settings)
    keeper.claim()
    assert signal.getsignal(signal.SIGHUP) is signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    keeper.stop()


def test_under_nohup_a_terminal_that_is_closed_ends_nothing(settings: Settings) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keeper = supervisor(settings)
    keeper.claim()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    keeper.stop()


@pytest.fixture(autouse=True)
def handlers_of_before() -> Iterator[None]:
    """What is begun here handles signals, and later tests are to find them as they were."""
    names = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(name) for name in names]
    yield
    for name, handler in zip(names, before, strict=True):
        signal.signal(name, handler)


@pytest.fixture
def hearing_hang_ups() -> Iterator[None]:
    """Also where tests run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hearing_hang_ups")
def test_a_terminal_that_is_closed_leaves_what_was_started_to_be_ended_in_its_turn() -> None:
    with deaf_to_hang_ups(), subprocess.Popen(["sleep", "600"]) as deaf:
        deaf.send_signal(signal.SIGHUP)
        deaf.terminate()
        assert deaf.wait(60) == -signal.SIGTERM
    with subprocess.Popen(["sleep", "600"]) as hears:
        hears.send_signal(signal.SIGHUP)
        assert hears.wait(60) == -signal.SIGHUP


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_ray_swallows_ends_the_start_all_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: signal.Signals
) -> None:
    def swallows(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(name)
        signal.raise_signal(name)  # the same, passed on

    monkeypatch.setattr(startup, "start_ray", swallows)
    monkeypatch.setattr(startup, "joined_ray", lambda: pytest.fail("the start went on"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    keeper = supervisor(settings)
    keeper.claim()
    with pytest.raises(KeyboardInterrupt):
        keeper.start("1 worker")
    keeper._ray = False  # there is none
    keeper.stop()


def test_an_interrupt_that_becomes_an_error_of_a_library_is_told_as_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def imports(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ValueError("a validator cannot be built") from error

    monkeypatch.setattr(starting, "_prepare", imports)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(typer.Exit) as ended:
        starting.start_and_serve(settings, None)
    assert ended.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err.endswith("Interrupted\n")


def test_an_interrupt_while_waiting_for_variants_is_no_failure(settings: Settings) -> None:
    keeper = supervisor(settings)
    keeper._interruption.tell()
    with pytest.raises(KeyboardInterrupt):
        keeper.wait_for_variants(3, {"digits"})


def test_a_signal_that_is_passed_on_as_well_is_one_and_a_later_one_kills() -> None:
    clock, killed = [10.0], list[float]()
    interruption = Interruption(
        kill=lambda: killed.append(clock[0]), breaks_off=lambda: False, clock_s=lambda: clock[0]
    )
    interruption.ends_in_order()
    assert not interruption.is_told()
    for clock[0] in (10.0, 10.0 + ONE_SIGNAL_S):
        signal.raise_signal(signal.SIGTERM)
        assert interruption.is_told()
    assert killed == []
    clock[0] += 0.1
    signal.raise_signal(signal.SIGINT)
    assert killed == clock


def test_the_first_signal_breaks_off_a_wait_that_does_not_look_for_it() -> None:
    interruption = Interruption(kill=lambda: None, breaks_off=lambda: True, clock_s=lambda: 10.0)
    interruption.ends_in_order()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # the same, passed on


def test_a_second_signal_ends_a_start_at_once_and_breaks_no_stop_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(interruption, "ONE_SIGNAL_S", -1.0)
    said: list[str] = []
    keeper = supervisor(settings, said)
    keeper.claim()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    template = psutil.Process(keeper._template.pid) if keeper._template else None
    signal.raise_signal(signal.SIGTERM)
    assert ended == [130]
    assert said == ["killed on request; queries in flight are lost"]
    assert template is None or not is_alive(template)
    keeper.stop()
    signal.raise_signal(signal.SIGTERM)  # as one that comes while it stops
    assert ended == [130, 130]


FILES = {one.__file__ for one in (startup, valkey, template_process, subprocess)}
"""Where a start is interrupted: what begins processes, and what has to know of them."""
Line = tuple[str, int]


class Lines:
    """The lines of ``FILES`` that run in this thread; at one of them SIGTERM comes, once."""

    def __init__(self, interrupted: Line | None = None) -> None:
        self._interrupted = interrupted
        self.seen: dict[Line, None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> "Lines | None":
        if frame.f_code.co_filename not in FILES:
            return None
        line = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and line not in self.seen:
            self.seen[line] = None
            if line == self._interrupted:
                signal.raise_signal(signal.SIGTERM)
        return self


@pytest.mark.slow
@pytest.mark.parametrize("every", [25, pytest.param(3, marks=pytest.mark.campaign)])
def test_whenever_a_start_is_interrupted_nothing_is_left_running(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """At lines of it, up to where Ray would be started, and of what ends it."""

    def begins(_: object, keeper: Supervisor) -> None:
        keeper._begin()
        raise KeyboardInterrupt

    monkeypatch.setattr("controlplane.startup.settings_warnings.oversights", lambda _: ())
    monkeypatch.setattr(starting, "_prepare", lambda *_: None)
    monkeypatch.setattr(starting, "_start", begins)
    monkeypatch.setattr(startup, "start_ray", lambda *_: None)
    monkeypatch.setattr(startup, "joined_ray", lambda: "")

    def started(lines: Lines) -> list[str]:
        """What is left running of a start."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        before, output = set(psutil.Process().children()), sys.stdout
        sys.settrace(lines)
        try:
            with pytest.raises((typer.Exit, KeyboardInterrupt)):
                starting.start_and_serve(settings, None)
        finally:
            sys.settrace(None)
            sys.stdout = output
        left = [one for one in set(psutil.Process().children()) - before if is_alive(one)]
        found = [" ".join(one.cmdline()[:3]) for one in left]
        for one in left:
            one.kill()
        assert running(settings) is None
        return found

    every_line = Lines()
    assert started(every_line) == []
    assert len(every_line.seen) > 150
    chosen = list(every_line.seen)[::every]
    left = {line: started(Lines(line)) for line in chosen}
    assert {line: found for line, found in left.items() if found} == {}


async def test_whoever_follows_the_live_state_hears_that_all_is_stopped(live_url: str) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async with opened(live_url) as live:
            async for what in live.changes():
                heard.append(what)

    listening = asyncio.create_task(listen())
    while not heard:
        await announce_end(live_url)  # again: nobody may listen yet
        await asyncio.sleep(0.01)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert set(heard) == {ENDING}
