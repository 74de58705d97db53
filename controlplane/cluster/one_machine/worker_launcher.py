"""What a raylet starts in the place of a worker's interpreter: it has a ready process forked.

``python -I -S worker_launcher.py SOCKET [flags] program.py arguments...``. It asks the template at
the socket (``worker_template.py``) for a process that goes on as this one would: with its
arguments, environment, folder and open files. Where there is no template, or none that answers in
time, it becomes what Ray would have started. Run as a script without site packages, so that it
costs 20 ms.
"""

import marshal
import os
import resource
import signal
import socket
import sys
from typing import Any

PATIENCE_S = 10.0
"""How long the template may take until it takes a request: it imports for two to five seconds when
it is new."""
MOST_FILES = 253
"""Of one message on a Unix socket, by the kernel (``SCM_MAX_FD``)."""
TAKEN, GO, STARTED = b"t", b"g", b"s"


def main() -> None:
    where, own = sys.argv[1], sys.argv[2:]
    try:
        started = _handed_over(where, own)
    except (OSError, ValueError):
        started = False
    if started:
        os._exit(0)
    os.execv(sys.executable, [sys.executable, *own])  # noqa: S606 - as Ray does


def _handed_over(where: str, own: list[str]) -> bool:
    """Whether a process forked from the template goes on with it."""
    files = _open_files()
    request = marshal.dumps(_described(own, files))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as template:
        template.settimeout(PATIENCE_S)
        template.connect(where)
        socket.send_fds(template, [len(request).to_bytes(4, "big")], files)
        template.sendall(request)
        if template.recv(1) != TAKEN:
            return False
        template.sendall(GO)  # whoever waited too long does not say so: no two begin
        return template.recv(1) == STARTED


def _described(own: list[str], files: list[int]) -> dict[str, Any]:
    """This process, as far as its raylet has made it."""
    with open("/proc/self/oom_score_adj") as file:
        score = file.read()
    return {
        "arguments": own,
        "environment": dict(os.environb),
        "folder": os.getcwdb(),
        "files": files,
        "oom_score_adj": score,
        "limits": [
            (limit, *resource.getrlimit(limit))
            for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
        ],
        "leads_group": os.getpgrp() == os.getpid(),
        "blocked": [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "ignored": [
            int(one)
            for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(one) is signal.SIG_IGN
        ],
    }


def _open_files() -> list[int]:
    with os.scandir("/proc/self/fd") as entries:
        found = sorted(int(entry.name) for entry in entries)
    files = [file for file in found if os.path.exists(f"/proc/self/fd/{file}")]
    if len(files) > MOST_FILES:
        raise ValueError("more open files than one message carries")
    return files


if __name__ == "__main__":
    main()
