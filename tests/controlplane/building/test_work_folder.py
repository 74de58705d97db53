"""Work folders are gone in the end, also those of processes that were killed."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.building.work_folder import PREFIX, work_folder
from tests.disks import small_disk
from variants.errors import InvalidInput, StateUnavailable

HOLDS = """
import sys, time
from pathlib import Path
from controlplane.building.work_folder import work_folder
with work_folder(Path(sys.argv[1])) as work:
    (work / "large").write_bytes(b"x")
    print(work, flush=True)
    time.sleep(600)
"""


@contextmanager
def another(scratch: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a folder, and the folder."""
    command = [sys.executable, "-c", HOLDS, str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_is_gone_with_all_that_is_in_it(tmp_path: Path) -> None:
    with work_folder(tmp_path) as work:
        (work / "deep").mkdir()
        (work / "deep" / "file").touch()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="broken"), work_folder(tmp_path) as work:
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_a_system_without_a_place_for_temporary_files_is_told() -> None:
    """As of a container whose root cannot be written: it was a traceback."""

    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found in ['/tmp', '/var/tmp']")

    with pytest.raises(InvalidInput, match="such as /tmp; set TMPDIR to one"):
        work_folder(temporary=nowhere).__enter__()


@pytest.mark.slow
def test_a_full_disk_is_told_with_the_place() -> None:
    """It was “a file cannot be written”."""
    with small_disk(256) as disk:
        said = f"^{disk} cannot be written: No space left on device; free some space there$"
        with pytest.raises(StateUnavailable, match=said), work_folder(disk) as work:
            (work / "large").write_bytes(bytes(2**20))
        assert list(disk.iterdir()) == []
    with pytest.raises(OSError, match="No space left"), work_folder(disk.parent):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/elsewhere/file")


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    with another(tmp_path) as (process, theirs):
        assert (theirs / "large").exists()
        with work_folder(tmp_path):
            assert (theirs / "large").exists()  # it is at work
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (theirs / "large").exists()
        with work_folder(tmp_path) as work:
            assert not theirs.exists()
            assert [one.name for one in tmp_path.iterdir()] == [work.parent.name]


def test_what_is_no_work_folder_stays(tmp_path: Path) -> None:
    """What has no lock is being made, or is not ours; a link is not followed."""
    begun, linked = tmp_path / f"{PREFIX}begun", tmp_path / f"{PREFIX}linked"
    begun.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    linked.symlink_to(elsewhere)
    with work_folder(tmp_path):
        pass
    assert begun.exists()
    assert (elsewhere / "lock").exists()
    assert linked.is_symlink()


def test_where_none_can_be_made_an_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), work_folder(tmp_path / "nowhere"):
        pass
    assert os.listdir(tmp_path) == []
