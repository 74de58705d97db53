"""What KubeRay and a Kubernetes node do with ``deploy/rayservice.yaml``, on machines of a test.

The operator starts Ray in each pod from ``rayStartParams``, hands ``serveConfigV2`` to the head's
dashboard, and replaces what is lost; the node runs the probes and starts a container that has ended
again; the Service leads to ready pods.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import yaml

from tests.deploy.files import documents, groups_of, ray_service, readme_commands
from tests.integration.deployment import Service
from tests.integration.machines.lab import (
    HOME,
    Lab,
    Reached,
    first_port,
    placed,
    user_environment,
)
from tests.integration.machines.network import PATH, Machine, Program

PLACES = {"/state": "/srv/state"}
"""Where the test has what a pod mounts."""
AGENT_PORT = 52_365
START_S = 600.0
KUBECTL = r"""
kubectl() { for word in "$@"; do printf '%s\n' "$word"; done; printf '\n'; }
"""
"""Says what it was asked for, a word on each line."""


@dataclass(kw_only=True, eq=False)
class Pod:
    """A running pod of one of the groups."""

    machine: Machine
    labels: Mapping[str, str]
    container: Mapping[str, Any]
    environment: Mapping[str, str]
    command: str
    """What its container runs."""
    ray: Program
    state: Path
    """What it mounts for its state, as the test sees it."""
    grace_s: float
    """How long its container may take to end."""
    starts: int = 1

    def tend(self) -> None:
        """Start the container again if it has ended, as the node does; nothing of it is left."""
        if self.ray.poll() is None:
            return
        for process in self.machine.processes():
            with suppress(psutil.Error):
                process.kill()
        self.starts += 1
        self.ray = self.machine.shell(self.command, self.environment)

    def is_in_the_cluster(self) -> bool:
        return "Ray runtime started" in self.ray.output

    def runs(self, command: list[str]) -> bool:
        """Whether a probe's command succeeds in the container."""
        return self.machine.start(command, self.environment).wait(30).code == 0

    def passes(self, probe: Mapping[str, Any]) -> bool:
        """Whether a probe of either kind succeeds."""
        if "exec" in probe:
            return self.runs(probe["exec"]["command"])
        port = int(probe["httpGet"]["port"])
        if port == AGENT_PORT:
            port = first_port(self.machine)
        try:
            found = Reached(self.machine, self.machine.address, port).request(
                "GET", probe["httpGet"]["path"]
            )
        except OSError:
            return False
        return 200 <= found.status < 400

    def is_ready(self) -> bool:
        """What its probe says, if it speaks of this pod: all pods of a test share one loopback."""
        ports = {one["containerPort"] for one in self.container.get("ports", ())}
        own = {port for _, port in self.machine.listening()}
        return ports <= own and self.passes(self.container["readinessProbe"])

    def is_alive(self) -> bool:
        return self.passes(self.container["livenessProbe"])


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster is on the one loopback that all machines of a test share."""

    uid: str = "the-uid-of-the-cluster"
    first: int = 2
    """The number of its head's machine; those of the others follow."""
    control_store: int = 6379
    dashboard: int = 8265
    client_server: int = 10_001
    metrics: int = 44_217
    """Of Ray's monitor; ten above it those of its dashboard."""
    http: int = 8000
    grpc: int = 8001


class KubeRay:
    """The pods of a Ray cluster of the file, and the operator that looks after them.

    While it upgrades one there are two: the second one has a place of its own, the same Secrets and
    the same claim.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        place: Place | None = None,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            place: by default that which the file says.
            secrets: those that were made before; by default new ones.
            spec: of the ``RayService``; by default the file's.
        """
        self._lab = lab
        self._place = place or Place()
        self._spec = moved(spec or ray_service(), self._place)
        self._cluster = self._spec["rayClusterConfig"]
        self.secrets = secrets or made_secrets(lab)
        self._numbers = iter(range(self._place.first, 12))
        self.head = self._head()
        self.pods: list[Pod] = [self.head]
        self._stopped = Event()
        self._node = Thread(target=self._tend, name="node", daemon=True)

    # -- pods -----------------------------------------------------------------------------------

    def _head(self) -> Pod:
        """A pod of the head. Ray's port leads to it whichever address it has, as KubeRay's Service
        for the head does."""
        group = self._cluster["headGroupSpec"]
        number = next(self._numbers)
        pod = self._pod(
            group,
            "head",
            number,
            f"127.0.0.{number}",
            f"--head --port={self._place.control_store} --redis-password=$REDIS_PASSWORD"
            f" --dashboard-port={self._place.dashboard}"
            f" --ray-client-server-port={self._place.client_server}",
        )

        def answers() -> bool:  # workers' pods wait for it, in an init container
            pod.machine.connect(pod.machine.address, self._place.control_store).close()
            return True

        Service().until(answers, "Ray's control store", START_S)
        return pod

    def add(self, group: Mapping[str, Any]) -> Pod:
        """A pod of a group, as the operator makes one when there are too few."""
        number = next(self._numbers)
        head = self.head.machine.address
        address = f"--address={head}:{self._place.control_store}"
        pod = self._pod(group, group["groupName"], number, head, address)
        self.pods.append(pod)
        return pod

    def replace_head(self) -> Pod:
        """Its node dies, and the operator makes another one, which has another address."""
        self.lose(self.head)
        self.head = self._head()
        self.pods.append(self.head)
        return self.head

    def group(self, name: str) -> Mapping[str, Any]:
        [found] = [one for one in self._cluster["workerGroupSpecs"] if one["groupName"] == name]
        return dict(found)

    def of(self, name: str) -> list[Pod]:
        """The pods of a group that run."""
        return [pod for pod in self.pods if pod.machine.name.rpartition("-")[0] == name]

    def lose(self, pod: Pod) -> None:
        """Its node has died."""
        self.pods.remove(pod)
        pod.machine.off()

    def end(self, pod: Pod) -> int | None:
        """Delete it, as the operator or `kubectl drain` does; the exit code of its container, or
        None where it had to be killed."""
        self.pods.remove(pod)
        pod.machine.ask(do="signal", pid=pod.ray.pid, number=signal.SIGTERM)
        deadline = time.monotonic() + pod.grace_s
        while (code := pod.ray.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.2)
        pod.machine.off()
        return code

    def _tend(self) -> None:
        """What the nodes do all the time."""
        while not self._stopped.wait(1.0):
            for pod in tuple(self.pods):
                with suppress(OSError):  # it is switched off meanwhile
                    pod.tend()

    def _pod(self, group: Mapping[str, Any], name: str, number: int, head: str, role: str) -> Pod:
        [container] = group["template"]["spec"]["containers"]
        state = self._state(group, number)
        machine = self._lab.machine(
            number,
            f"{name}-{number}",
            {state: PLACES["/state"]},
            read_only=container["securityContext"]["readOnlyRootFilesystem"],
        )
        environment = user_environment() | dict(self._variables(container))
        environment |= {
            "PATH": f"{HOME}/modelless-env/bin:{PATH}",  # the image's
            "RAY_IP": head,
            "FQ_RAY_IP": head,
            "RAY_PORT": str(self._place.control_store),
            "RAY_ADDRESS": f"{head}:{self._place.control_store}",
            "AUTOSCALER_METRIC_PORT": str(self._place.metrics),
            "DASHBOARD_METRIC_PORT": str(self._place.metrics + 10),
            "RAY_NODE_TYPE_NAME": name,
            "RAY_CLUSTER_NAME": "modelless",
        }
        if role.startswith("--head"):
            environment |= self._of_ray_s_own_redis()
        given = group["rayStartParams"]
        parameters = " ".join(f"--{name}={value}" for name, value in given.items())
        ray = placed(f"ray start {role} {parameters} --block", machine)
        command = f"ulimit -n 65536; exec {ray}"
        return Pod(
            machine=machine,
            labels=group["template"]["metadata"]["labels"],
            container=container,
            environment=environment,
            command=command,
            ray=machine.shell(command, environment),
            state=state,
            grace_s=group["template"]["spec"].get("terminationGracePeriodSeconds", 30),
        )

    def _of_ray_s_own_redis(self) -> dict[str, str]:
        """What the operator tells the head of where Ray keeps what it knows."""
        options = self._cluster["gcsFaultToleranceOptions"]
        reference = options["redisPassword"]["valueFrom"]["secretKeyRef"]
        return {
            "RAY_REDIS_ADDRESS": self._lab.addressed(options["redisAddress"]),
            "REDIS_PASSWORD": self.secrets[reference["name"]][reference["key"]],
            "RAY_external_storage_namespace": self._place.uid,
        }

    def _state(self, group: Mapping[str, Any], number: int) -> Path:
        """What the pod mounts for its state: the claim, or an empty folder of its own."""
        spec = group["template"]["spec"]
        [volume] = [one for one in spec["volumes"] if one["name"] == "state"]
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        folder = self._lab.network.folder / (claim or f"state-{number}")
        folder.mkdir(mode=0o700, exist_ok=claim is not None)
        return folder

    def _variables(self, container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for variable in container["env"]:
            if "value" in variable:
                value = variable["value"]
            else:
                reference = variable["valueFrom"]["secretKeyRef"]
                value = self.secrets[reference["name"]][reference["key"]]
            yield variable["name"], PLACES.get(value, value)

    # -- the operator and the Service -----------------------------------------------------------

    def start(self) -> None:
        """Start the workers' groups, and hand over the applications once the head answers.

        One worker's pod is left for ``add``: its node comes later.
        """
        self._node.start()
        groups = [
            group
            for group in self._cluster["workerGroupSpecs"]
            for _ in range(group["replicas"] - (group["groupName"] != "gateway"))
        ]
        for group in groups:  # all at once they take longer than Ray waits, on a busy machine
            pod = self.add(group)
            Service().until(pod.is_in_the_cluster, f"{pod.machine.name} has joined", START_S)
        config = yaml.safe_load(self._spec["serveConfigV2"])
        dashboard = self.dashboard()

        def handed_over() -> bool:
            answer = dashboard.request(
                "PUT",
                "/api/serve/applications/",
                config,
                {"Content-Type": "application/json"},
                timeout_s=60,
            )
            assert answer.status == 200, answer
            return True

        dashboard.until(handed_over, "the applications are taken", START_S)

    def stop(self) -> None:
        """Nothing is started again from now on."""
        self._stopped.set()
        if self._node.ident is not None:
            self._node.join()

    def logs(self) -> str:
        """What the pods have printed, and how often they were started."""
        return "\n".join(
            f"== {pod.machine.name}, started {pod.starts} times\n{pod.machine.logs()}"
            for pod in self.pods
        )

    def dashboard(self) -> Reached:
        secret = self._cluster["authOptions"]["secretName"]
        token = self.secrets[secret]["auth_token"]
        machine = self.head.machine
        port = self._place.dashboard
        return Reached(machine, machine.address, port, token=token, logs=self.logs)

    def applications(self) -> dict[str, Any]:
        """What Serve says of its applications, by name."""
        found: dict[str, Any] = self.dashboard().get("/api/serve/applications/")["applications"]
        return found

    def service(self) -> Reached:
        """The gateway's Service, as a pod in its namespace reaches it: some ready pod."""
        [service] = [one for one in documents("rayservice.yaml") if one["kind"] == "Service"]
        selector = service["spec"]["selector"].items()
        endpoints = [pod for pod in self.pods if selector <= pod.labels.items() and pod.is_ready()]
        assert endpoints, f"{service['metadata']['name']} has no endpoints"
        return Reached(
            self.head.machine,
            f"{service['metadata']['name']}.modelless",
            self._place.http,
            at=endpoints[0].machine.address,
            token=self.secrets["modelless"]["api_token"],
            logs=self.logs,
        )


def one_of_each(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A gateway and a worker beside the head, where memory and processors are short."""
    small: dict[str, Any] = json.loads(
        json.dumps(spec).replace("replicas: 2", "replicas: 1").replace('"2xcpu-4', '"1xcpu-4')
    )
    for group in groups_of(small["rayClusterConfig"]).values():
        for variable in group["template"]["spec"]["containers"][0]["env"]:
            if variable["name"] == "MODELLESS_GATEWAYS":
                variable["value"] = "1"
        if group.get("groupName") == "gateway":
            group["replicas"] = 1
    return small


def moved(spec: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """With the ports of gateways that a place says."""
    found: dict[str, Any] = json.loads(json.dumps(spec))
    named = {"MODELLESS_PORT": place.http, "MODELLESS_GRPC_PORT": place.grpc}
    for group in groups_of(found["rayClusterConfig"]).values():
        container = group["template"]["spec"]["containers"][0]
        for variable in container["env"]:
            if variable["name"] in named:
                variable["value"] = str(named[variable["name"]])
        for port in container.get("ports", ()):
            if port["name"] in ("http", "grpc"):
                port["containerPort"] = getattr(place, port["name"])
    return found


def made_secrets(lab: Lab) -> dict[str, dict[str, str]]:
    """The Secrets that the README's commands make, by name and key."""
    commands = lab.addressed(readme_commands("Make the namespace and the Secrets"))
    said = subprocess.run(
        ["bash", "-ec", KUBECTL + commands], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, dict[str, str]] = {}
    for words in (call.splitlines() for call in said.split("\n\n") if "secret" in call):
        name = words[words.index("generic") + 1]
        literals = [re.fullmatch(r"--from-literal=([^=]+)=(.*)", word) for word in words]
        found[name] = {one[1]: one[2] for one in literals if one}
    return found


def told(applications: Mapping[str, Any]) -> str:
    """What Serve says of applications, to show when they do not run."""
    rows = {
        name: [app["status"], app["message"]]
        + [one["message"] for one in app["deployments"].values()]
        for name, app in applications.items()
    }
    return json.dumps(rows, indent=1)
