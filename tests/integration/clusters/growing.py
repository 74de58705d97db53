"""A Ray cluster that its autoscaler grows and shrinks, by Ray's fake provider of nodes.

What Ray's own tests use (``ray.cluster_utils.AutoscalingCluster``) is written out here: its example
file is not in the wheel, and it begins with ``ray stop``, which ends all of Ray on a machine.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from controlplane.settings import load_settings
from tests.controlplane.fleet import register_echo
from tests.integration.clusters.asking import QUERY
from tests.integration.deployment import CLI, Service, short_directory
from tests.integration.machines.namespace import Namespace, namespace
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.types import DeviceKind, DeviceKindName

ROOT = Path(__file__).parents[3]
RAY = str(Path(sys.executable).with_name("ray"))
HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
"""The fake provider expects it."""
FAKE = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
PORT = 8000
HERE, SPOT = "cpu-1", "cpu-1-spot"
ROW_MS = 50
"""What a worker takes for a row: it serves 20 queries per second."""
SLICES = (
    f"1x{HERE}:memory_mib=100:nodes=modelless.io/kind={HERE},"
    f"0-2x{SPOT}:cores=1:memory_mib=100:usd_per_hour=0.01:nodes=modelless.io/kind={SPOT}"
)
SETTINGS = {
    "MODELLESS_RAY_ADDRESS": "127.0.0.1:6379",
    "MODELLESS_NODES": "1",
    "MODELLESS_PORT": str(PORT),
    "MODELLESS_GRPC_PORT": "0",
    "MODELLESS_SLICES": SLICES,
    "MODELLESS_GATEWAYS": "1",
    "MODELLESS_LINGER_S": "3",
    "MODELLESS_LISTEN_CHANNEL": "tcp:0.0.0.0",
}


class Growing(Service):
    """A head without workers, one node that is always there, and up to two that may be."""

    def __init__(self, inside: Namespace, folder: Path, **settings: str) -> None:
        self.inside = inside
        self.folder = folder
        self._settings = SETTINGS | {f"MODELLESS_{k.upper()}": v for k, v in settings.items()}
        self.state = folder / "s"
        self.state.mkdir()
        (self.state / "ray.token").write_text("5" * 64)
        (self.state / "ray.token").chmod(0o600)
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MODELLESS_", "RAY_")) and name != "REDIS_URL"
        }
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.state / "ray.token")}
        self.plain = plain | token | {"PYTHONPATH": str(ROOT)}

    @property
    def log(self) -> str:
        return (self.state / "run" / "up.log").read_text(errors="replace")

    def register(self) -> None:
        """A variant whose profile was measured on both kinds, before any node of one was there."""
        settings = load_settings(state_dir=self.state)
        with closing(open_catalog(settings.catalog_url)) as catalog:
            store = FileArtifactStore(settings.artifacts_dir)
            register_echo(catalog, store, self.folder, "m", latency_ms_per_row=str(ROW_MS))
            [known] = catalog.snapshot().profiles
            [point] = known.points
            slow = (replace(point, p50_ms=ROW_MS, p95_ms=ROW_MS, p99_ms=ROW_MS),)
            for name, usd in ((HERE, 0.04), (SPOT, 0.01)):
                kind = DeviceKind(
                    name=DeviceKindName(name), cores=1, memory_mib=100.0, usd_per_hour=usd
                )
                catalog.put_profiles((replace(known, device_kind=kind.name, points=slow),), (kind,))

    def start_ray(self) -> None:
        file = self.folder / "cluster.json"
        file.write_text(json.dumps(_file()))
        fake = {
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_worker_niceness": "0",
        }
        command = [
            RAY, "start", "--head", "--port=6379", "--node-ip-address=127.0.0.1", "--num-cpus=0",
            "--disable-usage-stats", "--include-dashboard=false", "--include-log-monitor=false",
            f"--temp-dir={self.folder}/ray",
            "--object-store-memory=80000000", f"--autoscaling-config={file}",
        ]  # fmt: skip
        ran = self.inside.run(command, self.plain | fake)
        assert ran.returncode == 0, ran.stdout

    def modelless(self, *arguments: str) -> str:
        environment = self.plain | self._settings | {"MODELLESS_STATE_DIR": str(self.state)}
        ran = self.inside.run([*CLI, *arguments], environment, timeout_s=600)
        assert ran.returncode == 0, ran.stdout
        return ran.stdout

    def told(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        told = self.modelless(*arguments, f"--url=http://127.0.0.1:{PORT}", "-o", "json")
        return json.loads(told[min(at for at in map(told.find, "[{") if at >= 0) :])

    def get(self, path: str) -> Any:
        command = ["wget", "-qO-", "--timeout=20", "--tries=1", f"http://127.0.0.1:{PORT}{path}"]
        ran = self.inside.run(command, self.plain)
        assert ran.returncode == 0, ran.stdout
        return json.loads(ran.stdout)

    def asked(self) -> int:
        """The status of an answer to a query."""
        url = f"http://127.0.0.1:{PORT}/v1/query"
        command = ["wget", "-qO/dev/null", "-S", f"--post-data={json.dumps(QUERY)}", url]
        ran = self.inside.run(command, self.plain)
        return int(ran.stdout.split("HTTP/1.1 ")[1].split()[0])

    def kinds(self) -> list[str]:
        """The kinds of the workers that run."""
        return sorted(one["device_kind"] for one in self.workers() if not one["draining"])

    def nodes(self) -> list[Mapping[str, Any]]:
        """Those that may have workers."""
        return [one for one in self.get("/v1/nodes")["nodes"] if not one["head"]]

    def events(self, kind: str) -> list[Mapping[str, str]]:
        """Newest first."""
        found = self.get("/v1/events?limit=1000")["events"]
        return [one for one in found if one["kind"] == kind]


class Asking:
    """Clients that ask at a rate; ``ledger`` has what became of each query."""

    def __init__(self, cluster: Growing, qps: float) -> None:
        self._folder = cluster.folder
        self.at(qps)
        self._process = cluster.inside.start(
            [
                sys.executable,
                "-m",
                "tests.integration.clusters.asking",
                str(PORT),
                str(self._folder),
            ],
            cluster.plain,
        )

    def at(self, qps: float) -> None:
        (self._folder / "rate").write_text(str(qps))

    def ledger(self) -> list[dict[str, Any]]:
        path = self._folder / "ledger.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    def end(self) -> list[dict[str, Any]]:
        """No more queries; the ledger when all are answered."""
        (self._folder / "rate").write_text("over")
        try:
            assert self._process.wait(120) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self.ledger()


@contextmanager
def growing(**settings: str) -> Iterator[Growing]:
    """A cluster on which modelless runs, with these settings over those of all."""
    with short_directory() as folder, namespace() as inside:
        cluster = Growing(inside, folder, **settings)
        cluster.register()
        cluster.start_ray()
        cluster.modelless("up", "--detach")
        yield cluster
        cluster.modelless("down")


def _file() -> dict[str, Any]:
    """What ``ray up`` would have left on the head."""
    resources = {"CPU": 1, "object_store_memory": 80_000_000}
    types = {
        kind: {
            "resources": dict(resources),
            "labels": {"modelless.io/kind": kind},
            "node_config": {},
            "min_workers": least,
            "max_workers": most,
        }
        for kind, least, most in ((HERE, 1, 1), (SPOT, 0, 2))
    }
    head = {"resources": {"CPU": 0}, "node_config": {}, "min_workers": 0, "max_workers": 0}
    commands = (
        "initialization", "setup", "head_setup", "worker_setup", "head_start_ray",
        "worker_start_ray",
    )  # fmt: skip
    return {
        "cluster_name": "growing",
        "max_workers": 3,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "external",  # whose defaults the wheel has
            "module": FAKE,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "gcs_address": "127.0.0.1:6379",
            "disable_node_updaters": True,
        },
        "auth": {},
        "docker": {},
        "available_node_types": {"ray.head.default": head, **types},
        "head_node_type": "ray.head.default",
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in commands},
    }
