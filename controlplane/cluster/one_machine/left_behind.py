"""What processes that have ended leave behind, of a Ray that was started here: logs and sockets.

Ray writes some files for each process that it starts and removes none while it runs. A worker that
crashes again and again, or a month of upgrades, would leave thousands. What a process still writes
is never touched: it is found by the files that the processes below this one have open. A worker
that is killed leaves the socket that it listened on.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

FOLDERS = ("", "serve", "events", "export_events")
"""Below Ray's logs, in which processes have files of their own."""
KEPT_FILES = 600
"""Of ended processes; each leaves six."""
KEPT_BYTES = 512 * 2**20
OF_A_PROCESS = re.compile(
    r"(worker-[0-9a-f]+-.*\.(out|err)|python-core-(worker|driver)-.*\.log|replica_.*\.log"
    r"|event_\w+_\d+\.log)(\.\d+)?"
)
_ROTATED = re.compile(r"\.\d+$")


def remove_sockets(run_dir: Path, listed: Path = Path("/proc/net/unix")) -> int:
    """Remove sockets of workers on which nobody listens; how many went."""
    there = list(run_dir.glob("w-*.sock"))  # before it is read who listens: a new one is in both
    try:
        # By their names, which no two workers share: the folder may be named in several ways.
        bound = {line.rpartition("/")[2] for line in listed.read_text().splitlines()}
    except OSError:
        return 0
    gone = [path for path in there if path.name not in bound]
    for path in gone:
        with contextlib.suppress(OSError):
            path.unlink()
    return len(gone)


def open_files(processes: Iterable[int]) -> set[str]:
    """The paths of all files that these processes have open."""
    return {path for process in processes for path in _open_in(process)}


def _open_in(process: int) -> Iterator[str]:
    folder = f"/proc/{process}/fd"
    try:
        numbers = os.listdir(folder)
    except OSError:  # it has ended
        return
    for number in numbers:
        with contextlib.suppress(OSError):
            yield os.readlink(f"{folder}/{number}")


def remove_ended(
    logs: Path,
    written: Collection[str],
    most_files: int = KEPT_FILES,
    most_bytes: int = KEPT_BYTES,
) -> int:
    """Remove the oldest logs of ended processes beyond so many, or so much; how many went.

    Args:
        logs: Ray's folder of them, without symbolic links.
        written: files that a process has open. What was begun before them, under the same name with
            a number, belongs to the same process.
    """
    ended = []
    for folder in FOLDERS:
        with contextlib.suppress(OSError), os.scandir(logs / folder) as found:
            for one in found:
                if OF_A_PROCESS.fullmatch(one.name) and _ROTATED.sub("", one.path) not in written:
                    state = one.stat(follow_symlinks=False)
                    ended.append((state.st_mtime, one.path, state.st_size))
    ended.sort(reverse=True)
    kept = gone = 0
    for place, (_, path, size) in enumerate(ended):
        kept += size
        if place >= most_files or kept > most_bytes:
            with contextlib.suppress(OSError):
                os.unlink(path)
                gone += 1
    return gone
