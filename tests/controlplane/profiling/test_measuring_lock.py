"""Who measures on a machine, shown with processes that end while they hold the lock."""

import subprocess
import sys
from pathlib import Path

from controlplane.profiling.measuring_lock import FILE, may_measure, measuring_first, measuring_last

HOLDER = """
import sys, time
from pathlib import Path
from controlplane.profiling.measuring_lock import measuring_first
with measuring_first(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def must_not() -> None:
    raise AssertionError("it waits")


def test_commands_measure_beside_each_other_and_the_control_loop_after_them(tmp_path: Path) -> None:
    run_dir = tmp_path / "state" / "run"
    with measuring_first(run_dir), measuring_first(run_dir, waits=must_not):
        assert not may_measure(run_dir)
        with measuring_last(run_dir) as may:
            assert not may
    with measuring_last(run_dir) as may:
        assert may
        assert not may_measure(run_dir)
    assert may_measure(run_dir)


def test_a_command_waits_for_what_the_control_loop_measures_and_says_so(tmp_path: Path) -> None:
    holds = measuring_last(tmp_path)
    assert holds.__enter__()
    told: list[str] = []

    def waits() -> None:
        told.append("waits")
        holds.__exit__(None, None, None)

    with measuring_first(tmp_path, waits):
        assert told == ["waits"]


def test_what_is_killed_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not may_measure(tmp_path)
        holder.kill()
    assert may_measure(tmp_path)


def test_without_a_file_the_control_loop_measures_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert not may_measure(tmp_path)
