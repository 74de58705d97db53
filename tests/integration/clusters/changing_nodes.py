"""A Ray cluster on loopback whose nodes join and leave while the test says so.

``python -m tests.integration.clusters.changing_nodes`` reads a command from each line: ``add
ADDRESS CORES`` or ``remove ADDRESS``, and answers each with a line; the first one it says is the
cluster's address. A process of its own, because Ray reads its environment once. The head has no
core, and no node has the processes that only Ray's dashboard needs: they take a third of all time.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]


class ChangingNodes:
    """The other end of it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.address = self._heard()

    def add(self, address: str, cores: int) -> None:
        self._say(f"add {address} {cores}")

    def remove(self, address: str) -> None:
        """Its raylet is killed, and all that runs on it."""
        self._say(f"remove {address}")

    def replicas(self, application: str) -> list[psutil.Process]:
        """The processes of a Serve application, on all nodes."""
        found = psutil.Process(self._process.pid).children(recursive=True)
        return [one for one in found if f"ray::ServeReplica:{application}" in _title(one)]

    def _say(self, words: str) -> None:
        assert self._process.stdin is not None
        print(words, file=self._process.stdin, flush=True)
        self._heard()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        heard = self._process.stdout.readline().strip()
        assert heard, "the cluster has ended"
        return heard


@contextmanager
def changing_nodes(state: Path) -> Iterator[ChangingNodes]:
    """A cluster with a token that an installation on ``state`` knows."""
    token = state / "ray.token"
    token.write_text("5" * 64)
    token.chmod(0o600)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MODELLESS_", "RAY_")) and name != "REDIS_URL"
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.clusters.changing_nodes"],
        cwd=ROOT,
        env=kept
        | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield ChangingNodes(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(120)


def _title(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return "".join(process.cmdline())
    return ""


class _Nodes:
    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False}
        self._cluster = Cluster(
            initialize_head=True, connect=False, head_node_args=head, shutdown_at_exit=False
        )
        self.address = self._cluster.address
        self._nodes: dict[str, object] = {}

    def obey(self, words: list[str]) -> None:
        match words:
            case ["add", address, cores]:
                self._nodes[address] = self._cluster.add_node(
                    wait=False, num_cpus=int(cores), node_ip_address=address
                )
            case ["remove", address]:
                self._cluster.remove_node(self._nodes.pop(address), allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


def main() -> None:
    from controlplane.cluster.one_machine.single_machine import bare_ray

    said = sys.stdout
    with bare_ray(), redirect_stdout(sys.stderr), closing(_Nodes()) as nodes:
        print(nodes.address, file=said, flush=True)
        for line in sys.stdin:
            nodes.obey(line.split())
            print("done", file=said, flush=True)


if __name__ == "__main__":
    main()
