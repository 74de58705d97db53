"""What ended processes leave: the newest logs stay, and so does whatever is in use still."""

import os
import socket
from pathlib import Path

from controlplane.cluster.one_machine.left_behind import (
    open_files,
    remove_ended,
    remove_sockets,
)

WORKER = "worker-0d5e-01000000-{}.err"


def write(path: Path, at: int, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return path


def test_the_newest_files_of_ended_processes_stay(tmp_path: Path) -> None:
    files = [write(tmp_path / WORKER.format(at), at) for at in range(5)]
    files += [write(tmp_path / "serve" / f"replica_m_{at}.log", at) for at in range(5, 9)]
    files += [write(tmp_path / "events" / f"event_CORE_WORKER_{at}.log", at) for at in (9, 10)]
    assert remove_ended(tmp_path, (), most_files=7) == 4
    assert [one.exists() for one in files] == [False] * 4 + [True] * 7
    assert remove_ended(tmp_path, (), most_files=7) == 0


def test_no_more_bytes_stay_than_they_may_take(tmp_path: Path) -> None:
    files = [write(tmp_path / WORKER.format(at), at, size=40) for at in range(4)]
    remove_ended(tmp_path, (), most_bytes=100)
    assert [one.exists() for one in files] == [False, False, True, True]


def test_what_a_process_writes_stays_with_what_it_has_written_before(tmp_path: Path) -> None:
    log = write(tmp_path / "serve" / "replica_modelless-gateway_gateway_a.log", 0)
    before = write(tmp_path / "serve" / f"{log.name}.1", 0)
    other = write(tmp_path / "serve" / "replica_modelless-gateway_gateway_b.log", 1)
    with log.open("a"):
        assert remove_ended(tmp_path, open_files([os.getpid(), 2**22 + 1]), most_files=0) == 1
    assert (log.exists(), before.exists(), other.exists()) == (True, True, False)


def test_files_of_ray_that_are_of_no_process_stay(tmp_path: Path) -> None:
    names = ("raylet.out", "gcs_server.out", "serve/controller_12.log", "events/event_RAYLET.log")
    kept = [write(tmp_path / name, 0) for name in names]
    assert remove_ended(tmp_path, (), most_files=0) == 0
    assert all(one.exists() for one in kept)
    assert remove_ended(tmp_path / "none", ()) == 0


def test_sockets_on_which_nobody_listens_go(short_folder: Path) -> None:
    used, left = short_folder / "w-1.sock", short_folder / "w-2.sock"
    other = short_folder / "g-1.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        for path in (left, other):
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(path))
        listening.bind(str(used))
        assert remove_sockets(short_folder) == 1
    assert (used.exists(), left.exists(), other.exists()) == (True, False, True)
    assert remove_sockets(short_folder, short_folder / "none") == 0
