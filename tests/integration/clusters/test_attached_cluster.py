"""``modelless up`` on a Ray cluster that was started before: a head and two nodes, on loopback.

The nodes are of two kinds, because one of them says so by its label. Their environment says nothing
of modelless that is right. The tests build on each other: the last one kills the cluster's control
store.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.settings import load_settings
from tests.integration.deployment import CLI, short_directory
from tests.integration.machines.namespace import Namespace, namespace
from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog
from variants.types import DeviceKind, DeviceKindName, Event, VariantName

pytestmark = pytest.mark.integration

RAY = str(Path(sys.executable).with_name("ray"))
PORT = 8000
LABELLED = "cpu-2-fast"
"""The kind that a node says it is."""
ZONE = "topology.kubernetes.io/zone"
HURRIES = """
for pid in $(pgrep -f 'ray::NodeBench|default_worker|profiler[.]sandbox'); do
    chrt --all-tasks --other --pid 0 $pid
    renice --priority 0 --pid $pid
done
"""
"""What measures waits for idle cores, as long as other tests compute: here it takes its part."""
SETTINGS = {
    "MODELLESS_RAY_ADDRESS": "auto",
    "MODELLESS_PORT": str(PORT),
    "MODELLESS_WORKER_MEMORY_MIB": "1024",
    "MODELLESS_LISTEN_CHANNEL": "tcp:0.0.0.0",
}


class Cluster:
    """Head at 127.0.0.1, nodes at 127.0.0.2 and 127.0.0.3, and a state directory for all."""

    def __init__(self, inside: Namespace, state: Path, scratch: Path) -> None:
        self.inside = inside
        self.state = state
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MODELLESS_", "RAY_")) and name != "REDIS_URL"
        }
        (state / "ray.token").write_text("5" * 64)
        (state / "ray.token").chmod(0o600)
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(state / "ray.token")}
        self._plain = kept
        # As of a machine on which something else was tried before.
        wrong = {"MODELLESS_STATE_DIR": str(scratch / "elsewhere"), "MODELLESS_PORT": "9000"}
        self._ray_environment = kept | ray | wrong
        self._temporary = str(scratch / "ray")

    def start_ray(self) -> None:
        # Nobody reads Ray's dashboard and logs here, and both take processor time all the while.
        common = ["--disable-usage-stats", "--include-log-monitor=false"]
        head = ["--head", "--port=6379", "--node-ip-address=127.0.0.1", "--num-cpus=0", *common]
        head.append(f"--labels={ZONE}=edge")
        self._ray(*head, "--include-dashboard=false", f"--temp-dir={self._temporary}")
        for number, *offers in (
            (2, "--num-cpus=2", f"--labels={ZONE}=edge"),
            (3, "--num-cpus=2", f"--labels=modelless.io/kind={LABELLED},{ZONE}=core"),
        ):
            node = ["--address=127.0.0.1:6379", f"--node-ip-address=127.0.0.{number}"]
            self._ray(*node, *offers, *common)

    def _ray(self, *arguments: str) -> None:
        ran = self.inside.run([RAY, "start", *arguments], self._ray_environment)
        assert ran.returncode == 0, ran.stdout

    def modelless(self, *arguments: str, **settings: str) -> tuple[int, str]:
        environment = self._plain | SETTINGS | {"MODELLESS_STATE_DIR": str(self.state)}
        extra = {f"MODELLESS_{name.upper()}": value for name, value in settings.items()}
        ran = self.inside.run([*CLI, *arguments], environment | extra, timeout_s=600)
        return ran.returncode, ran.stdout

    def shell(self, command: str) -> str:
        return self.inside.run(["bash", "-c", command], self._plain).stdout

    def query(self, rows: Path) -> Mapping[str, object]:
        """The answer to a query, asked from the head."""
        url = f"http://127.0.0.1:{PORT}"
        arguments = ["query", "digits", f"--input={rows}", "--latency-ms=2000", f"--url={url}"]
        code, told = self.modelless(*arguments, "-o", "json")
        assert code == 0, told
        return dict(json.loads(told[told.index("{") :]))

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that a command lists."""
        code, told = self.modelless(*arguments, f"--url=http://127.0.0.1:{PORT}", "-o", "json")
        assert code == 0, told
        rows: list[dict[str, Any]] = json.loads(told[told.index("[") :])
        return rows

    @property
    def log(self) -> str:
        return (self.state / "run" / "up.log").read_text()

    def until(self, text: str, patience_s: float = 600.0) -> str:
        """Wait until the log of ``up`` says this, whatever its lines are broken at."""
        deadline = time.monotonic() + patience_s
        while text not in (told := " ".join(self.log.split())):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.5)
        return told


@pytest.fixture(scope="module")
def catalog(state: Path) -> Iterator[Catalog]:
    with closing(open_catalog(load_settings(state_dir=state).catalog_url)) as found:
        yield found


@pytest.fixture(scope="module")
def elsewhere(catalog: Catalog) -> VariantName:
    """A variant whose profile another processor gave, and which has none on the labelled kind."""
    profile = min(catalog.snapshot().profiles, key=lambda one: one.points[-1].p50_ms)
    catalog.put_profiles((replace(profile, host="Z80; 1 cores", measured_on="elsewhere"),))
    return profile.variant


@pytest.fixture(scope="module")
def cluster(state: Path, catalog: Catalog, elsewhere: VariantName) -> Iterator[Cluster]:
    with short_directory() as scratch, namespace() as inside:
        _add_profiles(catalog, elsewhere)
        found = Cluster(inside, state, scratch)
        found.start_ray()
        yield found


def _add_profiles(catalog: Catalog, but: VariantName) -> None:
    """Profiles for the kind that a node says it is, taken to be those that were measured."""
    kind = DeviceKind(name=DeviceKindName(LABELLED), cores=2, memory_mib=1_024, usd_per_hour=0.08)
    known = [one for one in catalog.snapshot().profiles if one.variant != but]
    catalog.put_profiles(tuple(replace(one, device_kind=kind.name) for one in known), (kind,))


@pytest.fixture(scope="module")
def rows(family: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.json"
    path.write_text(json.dumps(np.load(family / "evaluation.npz")["pixels"][:3].tolist()))
    return path


@pytest.mark.campaign
def test_up_says_which_secret_the_nodes_do_not_see(cluster: Cluster) -> None:
    secret = "open-sesame-77"
    code, told = cluster.modelless("up", api_token=secret)

    assert code == 1
    assert re.search(
        r"error: .*modelless-\S+ does not start: node \S+ \(127\.0\.0\.1\) sees other settings"
        r" than the application was started with: MODELLESS_API_TOKEN;",
        told,
    )
    assert "no variant was loaded" not in told
    assert secret not in told


def test_replicas_run_with_the_settings_of_up_and_on_nodes_of_their_kind(
    cluster: Cluster, rows: Path
) -> None:
    code, told = cluster.modelless("up", "--detach")
    assert code == 0, told
    assert re.search(
        r"Nodes 2 with 4 cores: 1x cpu-2-fast \(\S+ \(127\.0\.0\.3\)\),"
        r" 1x cpu-2 \(\S+ \(127\.0\.0\.2\)\)",
        " ".join(told.split()),
    ), told

    answer = cluster.query(rows)
    assert answer["slo_met"] is True
    assert not (cluster.state.parent / "elsewhere").exists()

    titles = cluster.shell("ps -eo pid,ni,args | grep '[r]ay::ServeReplica'").splitlines()
    replicas = [line.split(None, 2) for line in titles]
    kinds = sorted(title.split(":")[3] for _, _, title in replicas)
    assert kinds == [
        "modelless-controller", "modelless-gateway", "modelless-gateway",
        "modelless-worker-cpu-2", "modelless-worker-cpu-2-fast",
    ]  # fmt: skip
    if os.geteuid() == 0:  # the nodes were started without RAY_worker_niceness
        levels = {(title.split(":")[3].split("-")[1], nice) for _, nice, title in replicas}
        assert levels == {("controller", "5"), ("gateway", "0"), ("worker", "0")}
    nodes = {}
    for pid, _, title in replicas:
        parent = cluster.shell(f"tr '\\0' ' ' < /proc/$(ps -o ppid= {pid} | tr -d ' ')/cmdline")
        [node] = re.findall(r"--node_ip_address=(\S+)", parent)
        nodes[title.split(":")[3]] = node
    assert nodes == {
        "modelless-controller": "127.0.0.1",
        "modelless-gateway": "127.0.0.1",
        "modelless-worker-cpu-2-fast": "127.0.0.3",
        "modelless-worker-cpu-2": "127.0.0.2",
    }


def test_each_kind_is_told_with_where_it_comes_from_and_its_nodes(cluster: Cluster) -> None:
    """The environment of this command names none of them."""
    told = cluster.listed("devices", "list")
    deadline = time.monotonic() + 600
    while not all(row["nodes"] for row in told if row["source"]):  # the control loop tells them
        assert time.monotonic() < deadline, cluster.log
        time.sleep(0.5)
        told = cluster.listed("devices", "list")
    found = {row["name"]: (row["source"], row["running"]) for row in told if row["source"]}
    nodes = {row["name"]: [name.split()[-1] for name in row["nodes"]] for row in told}

    assert found == {LABELLED: ("found", 1), "cpu-2": ("found", 1)}
    assert (nodes[LABELLED], nodes["cpu-2"]) == (["(127.0.0.3)"], ["(127.0.0.2)"])


def test_workers_and_gateways_are_in_the_zones_that_their_nodes_say(
    cluster: Cluster, rows: Path
) -> None:
    told = cluster.listed("workers", "list")
    assert {row["device_kind"]: row["zone"] for row in told} == {"cpu-2": "edge", LABELLED: "core"}

    # The gateways are in the head's zone, so that the dearer kind there answers as well.
    [near] = [row["worker"] for row in told if row["zone"] == "edge"]
    assert {cluster.query(rows)["worker"] for _ in range(4)} == {near}


def test_what_has_no_true_profile_is_measured_on_a_node_of_its_kind(
    cluster: Cluster, catalog: Catalog, elsewhere: VariantName
) -> None:
    deadline = time.monotonic() + 600
    while len(told := _measured(catalog)) < 2:
        assert time.monotonic() < deadline, cluster.log
        cluster.shell(HURRIES)
        time.sleep(0.5)

    assert {event.subject for event in told} == {f"digits/{elsewhere}"}
    nodes = {
        one.device_kind: one.measured_on.partition(" ")[2]
        for one in catalog.snapshot().profiles
        if one.variant == elsewhere
    }
    assert nodes == {"cpu-2": "(127.0.0.2)", LABELLED: "(127.0.0.3)"}
    # What has measured ends when all is told, which takes Ray a moment.
    while (left := cluster.shell("pgrep -f '[r]ay::NodeBench'")) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == ""
    reasons = sorted(event.message.partition("; why: ")[2].partition(";")[0] for event in told)
    assert reasons[0].startswith("processor Z80 -> ")
    assert reasons[1:] == ["was never measured here"]


def _measured(catalog: Catalog) -> list[Event]:
    return [one for one in catalog.events(limit=100) if one.kind == "profile_measured"]


def test_serves_own_ports_listen_on_loopback(cluster: Cluster) -> None:
    """Ray itself opens one port on all interfaces in each process; it answers to the token."""
    listening = cluster.shell("ss -ltnpH | grep 'ray::ServeRepli'").splitlines()
    everywhere: dict[str, int] = {}
    for line in listening:
        pid = line.partition("pid=")[2].partition(",")[0]
        everywhere[pid] = everywhere.get(pid, 0) + line.split()[3].startswith(("*:", "0.0.0.0:"))
    assert everywhere
    assert max(everywhere.values()) <= 1


def test_queries_go_on_without_the_control_store_and_up_says_what_happens(
    cluster: Cluster, rows: Path
) -> None:
    cluster.shell("kill -9 $(pgrep -f gcs/gcs_server)")

    cluster.until("Ray's control store at 127.0.0.1:6379 does not answer: queries go on")
    assert cluster.query(rows)["slo_met"] is True

    cluster.shell("kill -9 $(pgrep -f raylet/raylet)")
    told = cluster.until("error: Ray has died on this machine; its logs are in ")
    logs = Path(told.rpartition("its logs are in ")[2].partition(" on each node")[0])
    assert (logs / "raylet.out").exists()
    assert "what Ray runs on other nodes goes on" in cluster.log
    assert cluster.shell("pgrep -f valkey-server") == ""
    assert cluster.modelless("down")[1].strip().endswith(f"is not running on {cluster.state}")
