"""``modelless events list``: what is asked for, once or as it goes on."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.cli.render.event_lines import lost_workers
from tests.controlplane.cli.asking.answering import Answering
from tests.controlplane.cli.shell import Shell
from variants.types import Event

ROOT = Path(__file__).parents[4]
FOLLOW = (sys.executable, "-m", "controlplane.cli.main", "events", "list", "--follow")


def happened(gateway: Answering, kind: str, subject: str, ago_s: float = 0.0) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat()
    gateway.catalog.add_event(Event(at=at, kind=kind, subject=subject, message=f"{subject} so"))


@pytest.fixture
def told(gateway: Answering) -> Answering:
    happened(gateway, "worker_lost", "w1", ago_s=7_200)
    happened(gateway, "loaded", "digits/a on w2", ago_s=600)
    happened(gateway, "worker_joined", "w2", ago_s=60)
    return gateway


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("--kind", "worker_lost", "--kind", "loaded"), ["worker_lost", "loaded"]),
        (("--since", "1h"), ["loaded", "worker_joined"]),
        (("--since", "2000-01-01"), ["worker_lost", "loaded", "worker_joined"]),
        (("--task", "digits"), ["loaded"]),
        (("--worker", "w2", "--since", "5m"), ["worker_joined"]),
        (("--kind", "quarantined"), []),
    ],
)
def test_what_is_asked_for(
    told: Answering, shell: Shell, options: tuple[str, ...], kinds: list[str]
) -> None:
    rows = shell("events", "list", "-o", "json", *options, url=told.url).json()
    assert [row["kind"] for row in rows] == kinds


def test_events_without_a_command_lists_them(told: Answering, shell: Shell) -> None:
    for options in ((), ("--since", "1h"), ("-o", "json")):
        assert shell("events", *options, url=told.url) == shell(
            "events", "list", *options, url=told.url
        )


def test_a_table_names_the_zone_of_its_times(told: Answering, shell: Shell) -> None:
    out = shell("events", "list", "--kind", "worker_lost", url=told.url).out
    [event] = told.catalog.events(10)[2:]
    assert "AT (UTC)" in out
    assert event.at[:19].replace("T", " ") in out
    empty = shell("events", "list", "--since", "1s", url=told.url).out
    assert empty == "Nothing of that has happened.\n"


def test_who_asks_for_what_there_is_not_is_told_what_there_is(
    told: Answering, shell: Shell
) -> None:
    for asked, known in (
        ("--kind=lots", "worker_lost"),
        ("--task=x", "digits"),
        ("--worker=w", "w"),
    ):
        ended = shell("events", "list", asked, "-o", "json", url=told.url)
        assert (ended.code, ended.out) != (0, "")
        assert known in ended.err


def test_who_asks_for_a_kind_that_there_was_none_of_is_told_which_there_were(
    told: Answering, shell: Shell
) -> None:
    out = shell("events", "list", "--kind", "quarantined", url=told.url).out

    assert out == (
        "Nothing of that has happened. "
        "Kinds of events that have: loaded, worker_joined, worker_lost.\n"
    )
    assert shell("events", "list", "--kind", "quarantined", "-o", "json", url=told.url).json() == []


@pytest.mark.parametrize("wrong", ["1y", "soon", "5 m", "0s", "2026-13-01"])
def test_a_time_that_is_none_is_told(told: Answering, shell: Shell, wrong: str) -> None:
    ended = shell("events", "list", "--since", wrong, url=told.url)
    assert (ended.code, ended.out) == (2, "")
    assert "--since" in ended.err


def event(seq: int, kind: str, worker: str, message: str = "") -> dict[str, object]:
    at = f"2026-01-01T00:00:{seq:02}.500+00:00"
    return {"seq": seq, "at": at, "kind": kind, "subject": worker, "message": message}


def test_a_worker_that_was_lost_is_told_with_what_came_in_its_place() -> None:
    rows = [
        event(1, "worker_joined", "cpu-1-a"),
        event(2, "worker_lost", "cpu-1-a", "worker cpu-1-a is gone: its process crashed"),
        event(3, "worker_lost", "cpu-1-b", "worker cpu-1-b is gone: its connection broke"),
        event(4, "worker_joined", "gpu-c"),
        event(6, "worker_joined", "cpu-1-d"),
    ]
    assert lost_workers(rows) == [
        "cpu-1-b was lost at 00:00:03 UTC: its connection broke; none has come in its place yet",
        "cpu-1-a was lost at 00:00:02 UTC: its process crashed; cpu-1-d came 4 s later",
    ]


def test_a_worker_that_was_lost_before_all_was_stopped_is_past() -> None:
    rows = [
        event(1, "worker_lost", "cpu-1-a", "worker cpu-1-a is gone: its process crashed"),
        event(2, "worker_joined", "cpu-1-b"),
        event(3, "worker_left", "cpu-1-b", "worker cpu-1-b is gone: it had drained"),
        event(4, "worker_joined", "cpu-1-c"),
    ]
    assert lost_workers(rows) == []
    assert len(lost_workers(rows[:2])) == 1


def test_what_was_lost_unseen_is_told_with_what_the_control_loop_found_in_its_place() -> None:
    unseen = "worker {} is gone: it was lost while no control loop was running"
    rows = [
        event(1, "worker_joined", "cpu-1-a"),
        event(2, "worker_joined", "cpu-1-c"),
        event(7, "worker_lost", "cpu-1-a", unseen.format("cpu-1-a")),
        event(8, "worker_lost", "cpu-1-b", unseen.format("cpu-1-b")),
    ]
    why = "it was lost while no control loop was running"
    assert lost_workers(rows) == [
        f"cpu-1-b was lost at 00:00:08 UTC: {why}; none has come in its place yet",
        f"cpu-1-a was lost at 00:00:07 UTC: {why}; cpu-1-c is there in its place",
    ]


def test_of_many_that_were_lost_the_last_ones_are_told() -> None:
    found = lost_workers([event(n, "worker_lost", f"cpu-1-{n}") for n in range(9)])
    assert len(found) == 6
    assert found[0].startswith("cpu-1-8 was lost")
    assert found[-1] == "4 more were lost shortly before"


def test_status_tells_of_workers_that_were_lost_lately(told: Answering, shell: Shell) -> None:
    assert "was lost" not in shell("status", url=told.url).out
    happened(told, "worker_lost", "cpu-4-x", ago_s=300)
    out = shell("status", url=told.url).out
    assert "! cpu-4-x was lost at " in out
    assert "w1 was lost" not in out
    assert len(shell("status", "-o", "json", url=told.url).json()["lost"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_comes_is_followed_until_it_is_interrupted(told: Answering, output: str) -> None:
    command = [*FOLLOW, "--kind", "worker_lost", "-o", output, "--url", told.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        happened(told, "worker_joined", "w3")
        happened(told, "worker_lost", "w3")
        second = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    if output == "json":
        assert [json.loads(line)["subject"] for line in (first, second)] == ["w1", "w3"]
    else:
        assert [line.split(" UTC  ")[1] for line in (first, second)] == [
            "worker_lost  w1: w1 so\n", "worker_lost  w3: w3 so\n",
        ]  # fmt: skip
