"""What a single machine runs in the place of Ray's dashboard agent: nothing, until its raylet ends.

A raylet starts its agent, reads the ports that the agent wrote into files of the session, and ends
with it. The real one collects figures for Ray's dashboard, which one machine runs without, in
78 MiB. Run as a script without site packages, ``python -I -S idle_agent.py``, with the arguments of
Ray's own.
"""

import os
import sys
import time

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
"""Files that the raylet waits for; -1 in one says that there is no such service."""
LOOK_S = 1.0
"""How soon it follows its raylet; Ray's own looks every two seconds."""


def main() -> None:
    given = dict(word.lstrip("-").split("=", 1) for word in sys.argv if "=" in word)
    raylet = int(os.environ["RAY_RAYLET_PID"])
    for name in PORTS:
        path = os.path.join(given["session-dir"], f"{name}_{given['node-id']}")
        with open(f"{path}.new", "w") as file:
            file.write("-1")
        os.rename(f"{path}.new", path)
    while os.getppid() == raylet:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
