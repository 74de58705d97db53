"""What a start says of workers that are wanted."""

import fcntl
import os
from pathlib import Path

import pytest

from controlplane.cli.starting import not_here, wanted_workers
from controlplane.settings import load_settings
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare
from controlplane.views.fleet_status import asked_words
from tests.controlplane.cli.shell import Shell
from tests.ports import free_port
from variants.types import DeviceKindName


def test_up_says_how_many_workers_are_wanted_and_by_what(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, cores=4, workers=2)
    stored = {DeviceKindName("cpu-2"): 1, DeviceKindName("cpu-4"): 3, DeviceKindName("x"): 0}

    [own], others = wanted_workers(settings, stored)

    assert asked_words(own) == (
        "1 worker cpu-2 (stored by `modelless workers scale`; MODELLESS_WORKERS says 2)"
    )
    assert [not_here(row) for row in others] == [
        "3 workers cpu-4 (stored by `modelless workers scale`) wanted too, and not deployed by "
        "this command; `modelless workers scale cpu-4 0` ends that"
    ]


def test_of_layouts_the_first_comes_that_the_stored_numbers_leave(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1")
    one, two = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
    cases: tuple[tuple[dict[DeviceKindName, int], int, int], ...] = (
        ({}, 0, 1), ({two: 0}, 2, 0), ({one: 1}, 0, 1), ({two: 0, one: 1}, 1, 0),
    )  # fmt: skip
    for stored, narrow, wide in cases:
        rows, others = wanted_workers(settings, stored)
        assert {row.device_kind: row.asked for row in rows} == {"cpu-1": narrow, "cpu-2": wide}
        assert others == []


def test_a_start_that_goes_on_is_no_absence(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("MODELLESS_PORT", str(free_port()))
    settings = load_settings()
    prepare(settings)
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        said = shell("tasks", "list")
    assert said.code == 3
    assert said.err.startswith(f"error: modelless is starting (process {os.getpid()}): it trains")


def test_a_gateway_that_has_ended_is_told_from_nothing_that_runs(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`modelless up`, which was advised, would have refused to start."""
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("MODELLESS_PORT", str(free_port()))
    settings = load_settings()
    prepare(settings)
    (settings.run_dir / "ready").write_text(str(os.getpid()))
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        said = shell("status")
    assert said.code == 3
    assert said.err.startswith(f"error: no gateway listens at {settings.gateway_url}, though")
    assert f"`modelless up` runs (process {os.getpid()})" in said.err
