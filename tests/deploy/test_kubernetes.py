"""The overlays for Kubernetes as ``kubectl`` builds them, against the schemas of both."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private import ray_constants

from controlplane.access import client_keys
from controlplane.cluster.serve_applications import GATEWAY_APP, WORKER_APP
from tests.clients import program
from tests.deploy.files import (
    DEPLOY,
    ROOT,
    container_of,
    groups_of,
    readme_block,
    settings_of,
)
from workers.deployment import LEAVES_S

FOLDER = DEPLOY / "kubernetes"
OVERLAYS = [
    "base",
    *sorted(f"overlays/{path.parent.name}" for path in FOLDER.glob("overlays/*/*ization.yaml")),
]
FIELDS = yaml.safe_load((Path(__file__).parent / "kuberay_fields.yaml").read_text())
KUBERNETES = "1.34"
every = pytest.mark.parametrize("overlay", OVERLAYS)


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    """What ``kubectl kustomize`` makes of an overlay."""
    return list(yaml.safe_load_all(output(kubectl(), "kustomize", str(FOLDER / overlay))))


def kubectl() -> str:
    """One that is new enough; Debian's own is too old for the overlays."""
    found = shutil.which("kubectl")
    told = "" if found is None else output(found, "version", "--client")
    version = told.partition("Kustomize Version: v")[2].partition(".")[0]
    if found is None or not version.isdigit() or int(version) < 5:
        # No registry of packages has one to install: this skips in CI as well.
        pytest.skip("no kubectl with kustomize 5 is installed")
    return found


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode or "--client" in command, done.stderr
    return done.stdout


def service(overlay: str) -> dict[str, Any]:
    [found] = [one for one in built(overlay) if one["kind"] == "RayService"]
    return dict(found["spec"])


def groups(overlay: str) -> dict[str, Any]:
    """The groups of pods by their names."""
    return groups_of(service(overlay)["rayClusterConfig"])


def applications(overlay: str) -> dict[str, Any]:
    config = yaml.safe_load(service(overlay)["serveConfigV2"])
    return {one["name"]: one for one in config["applications"]}


def unknown(value: Any, known: Any, at: str = "spec") -> list[str]:
    """Fields that KubeRay does not have."""
    if known is None:
        return []
    if isinstance(known, list):
        assert isinstance(value, list), at
        return [name for one in value for name in unknown(one, known[0], f"{at}[]")]
    assert isinstance(value, dict), at
    found = [f"{at}.{name}" for name in value if name not in known]
    return found + [
        name for key in value.keys() & known.keys()
        for name in unknown(value[key], known[key], f"{at}.{key}")
    ]  # fmt: skip


def test_there_are_overlays() -> None:
    assert {"overlays/small", "overlays/gpu", "overlays/zones"} <= set(OVERLAYS)


@every
def test_what_is_built_is_what_the_base_has(overlay: str) -> None:
    def named(name: str) -> list[tuple[str, str]]:
        return sorted((one["kind"], one["metadata"]["name"]) for one in built(name))

    assert named(overlay) == named("base")


@every
def test_kuberay_knows_every_field(overlay: str) -> None:
    assert unknown(service(overlay), FIELDS) == []


def test_a_wrong_field_would_be_found() -> None:
    wrong = {"rayClusterConfig": {"workerGroupSpecs": [{"groupName": "a", "minReplica": 1}]}}
    assert unknown(wrong, FIELDS) == ["spec.rayClusterConfig.workerGroupSpecs[].minReplica"]


@every
def test_kubernetes_accepts_all_that_is_its_own(overlay: str, tmp_path: Path) -> None:
    """Service, policies and claim, and the pods of every group."""
    validate = str(program("kubernetes", "kubernetes-validate"))
    own = [one for one in built(overlay) if one["kind"] != "RayService"]
    for name, group in groups(overlay).items():
        template = group["template"]
        metadata = {"name": name} | template.get("metadata", {})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        own.append(pod)
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump_all(own))
    output(validate, "--strict", "-k", KUBERNETES, str(file))
    own[-1]["spec"]["terminationGracePeriod"] = 60
    file.write_text(yaml.safe_dump_all(own))
    with pytest.raises(AssertionError):
        output(validate, "--strict", "-k", KUBERNETES, str(file))


@every
def test_applications_pods_and_settings_say_the_same(overlay: str) -> None:
    told, pods, apps = settings_of(groups(overlay)["head"]), groups(overlay), applications(overlay)

    assert {name for name in apps if name.startswith(WORKER_APP)} == {
        WORKER_APP + kind.name for kind in told.kinds
    }
    for kind in told.kinds:
        group, args = pods[kind.name], apps[WORKER_APP + kind.name]["args"]
        gpus = {} if kind.gpu is None else {"num_gpus": 1}
        assert args == gpus | {
            "device_kind": kind.name,
            "cores": kind.cores,
            "memory_mib": kind.memory_mib,
            "replicas": group["replicas"],
            "listen": told.listen_channel,
        }
        assert kind.nodes is not None
        labels = {"ray.io/node-group": group["groupName"], **group.get("labels", {})}
        assert kind.nodes.values == (labels[kind.nodes.label],) == (kind.name,)
        least = kind.least_of(kind.most)
        assert (group["minReplicas"], group["maxReplicas"]) == (least, kind.most)
        assert least <= group["replicas"] <= kind.most
        limits = container_of(group)["resources"]["limits"]
        assert limits["cpu"] == group["rayStartParams"]["num-cpus"]
        assert kind.cores <= int(limits["cpu"])
        assert kind.gpu is not None or kind.cores == int(limits["cpu"])
        assert limits.get("nvidia.com/gpu", 0) == gpus.get("num_gpus", 0)
        assert group["rayStartParams"].get("num-gpus") == (None if kind.gpu is None else "1")
        room_mib = 1024 * int(limits["memory"].removesuffix("Gi"))
        assert kind.gpu is not None or kind.memory_mib < room_mib
    gateways = {pods["gateway"][f"{of}eplicas"] for of in ("r", "minR", "maxR")}
    assert gateways == {apps[GATEWAY_APP]["args"]["replicas"]} == {told.gateways}


@every
def test_all_pods_are_told_the_same(overlay: str) -> None:
    told = [container_of(group)["env"] for group in groups(overlay).values()]
    assert told[1:] == told[:-1]
    images = {container_of(group)["image"] for group in groups(overlay).values()}
    assert len(images) == 1


@every
def test_a_pod_that_is_deleted_has_time_to_leave(overlay: str) -> None:
    """Ray drains its node when the container is told to end, and loads go elsewhere first. The head
    waits as long, since the control loop cannot go elsewhere, and ends its processes then."""
    assert ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S > 0
    for name in groups(overlay):
        group = groups(overlay)[name]
        told = {one["name"]: one.get("value") for one in container_of(group)["env"]}
        drains_s = float(told["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert drains_s > LEAVES_S + 30
        assert drains_s + 10 < group["template"]["spec"]["terminationGracePeriodSeconds"]


def gib(text: str) -> int:
    return int(text.removesuffix("Gi"))


@every
def test_pods_are_what_a_strict_cluster_takes(overlay: str) -> None:
    """The profile `restricted` of Kubernetes' Pod Security Standards, a root file system that
    nobody writes, and bounds for all that is written elsewhere."""
    cluster = service(overlay)["rayClusterConfig"]
    for group in groups(overlay).values():
        spec, container = group["template"]["spec"], container_of(group)
        of_pod = spec["securityContext"]
        assert of_pod["runAsNonRoot"]
        assert of_pod["runAsUser"] > 0
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers"}
        beside = [cluster["autoscalerOptions"]] if "autoscalerOptions" in cluster else []
        for one in (container, *beside):
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "HOME", "value": "/tmp"} in one["env"]
            assert {"name": "tmp", "mountPath": "/tmp"} in one["volumeMounts"]
            assert one["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}
            assert one["resources"]["requests"].keys() >= {"cpu", "memory", "ephemeral-storage"}
        kinds = {key for volume in spec["volumes"] for key in volume.keys() - {"name"}}
        assert kinds <= {"emptyDir", "persistentVolumeClaim", "secret"}
        empty = [volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume]
        on_disk = sum(gib(one["sizeLimit"]) for one in empty if one.get("medium") != "Memory")
        assert on_disk <= gib(container["resources"]["limits"]["ephemeral-storage"])
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


@every
def test_pods_may_reach_what_they_are_told_of(overlay: str, tmp_path: Path) -> None:
    [policy] = built("egress")
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    validate = str(program("kubernetes", "kubernetes-validate"))
    output(validate, "--strict", "-k", KUBERNETES, str(file))
    chosen = policy["spec"]["podSelector"]["matchLabels"].items()
    for group in groups(overlay).values():
        assert chosen <= group["template"]["metadata"]["labels"].items()
    own, names, stores = policy["spec"]["egress"]
    assert own == {"to": [{"podSelector": {"matchLabels": dict(chosen)}}]}
    assert {one["port"] for one in names["ports"]} == {53}
    address = service(overlay)["rayClusterConfig"]["gcsFaultToleranceOptions"]["redisAddress"]
    redis_port = int(address.rpartition(":")[2])
    assert {one["port"] for one in stores["ports"]} >= {redis_port, 5432, 443}


@every
def test_who_empties_a_machine_leaves_some_pods_and_is_not_kept_from_it(overlay: str) -> None:
    budgets = [one["spec"] for one in built(overlay) if one["kind"] == "PodDisruptionBudget"]
    workers = [group for name, group in groups(overlay).items() if name != "head"]
    labels = [(one["template"]["metadata"]["labels"], one["replicas"]) for one in workers]
    for budget in budgets:
        chosen = budget["selector"]["matchLabels"].items()
        pods = sum(count for own, count in labels if chosen <= own.items())
        # Kubernetes takes no other number for pods of an operator.
        assert isinstance(budget["minAvailable"], int)
        assert budget["minAvailable"] == pods - 1
    chosen_by = [budget["selector"]["matchLabels"].items() for budget in budgets]
    assert [sum(one <= own.items() for one in chosen_by) for own, _ in labels] == [1] * len(labels)


@every
def test_pods_of_a_kind_go_to_machines_of_their_own(overlay: str) -> None:
    for name in ("gateway", *(n for n in groups(overlay) if n.startswith("cpu-"))):
        template = groups(overlay)[name]["template"]
        rules = template["spec"]["topologySpreadConstraints"]
        assert "kubernetes.io/hostname" in [rule["topologyKey"] for rule in rules]
        for rule in rules:
            selected = rule["labelSelector"]["matchLabels"]
            assert selected.items() <= template["metadata"]["labels"].items()


def test_what_grows_has_an_autoscaler_that_knows_labels_and_may_ask_for_pods() -> None:
    for overlay in OVERLAYS:
        cluster, pods = service(overlay)["rayClusterConfig"], groups(overlay)
        grows = [one for one in pods.values() if one.get("minReplicas") != one.get("maxReplicas")]
        assert bool(grows) == cluster.get("enableInTreeAutoscaling", False)
        assert all("modelless.io/kind" in one["labels"] for one in grows)
        if grows:
            assert cluster["autoscalerOptions"]["version"] == "v2"
        head = pods["head"]["template"]["spec"]
        assert head["automountServiceAccountToken"] == bool(grows)


def test_a_folder_of_one_s_own_changes_image_and_redis(tmp_path: Path) -> None:
    """The README's. Kustomize builds nothing of absolute paths."""
    text = readme_block("What is yours alone can stand in a folder beside")
    shutil.copytree(FOLDER, tmp_path / "modelless/deploy/kubernetes")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/kustomization.yaml").write_text(text)
    made = list(yaml.safe_load_all(output(kubectl(), "kustomize", str(tmp_path / "own"))))
    [found] = [one["spec"]["rayClusterConfig"] for one in made if one["kind"] == "RayService"]
    images = {container_of(group)["image"] for group in groups_of(found).values()}
    assert images == {"registry.example.com/modelless:1"}
    address = found["gcsFaultToleranceOptions"]["redisAddress"]
    assert address == "rediss://redis.example.com:6379"


def test_what_images_are_built_on_and_run_can_be_pinned(tmp_path: Path) -> None:
    text = readme_block("What is yours alone can stand in a folder beside")
    digest = "sha256:" + "0123456789abcdef" * 4
    shutil.copytree(FOLDER, tmp_path / "modelless/deploy/kubernetes")
    (tmp_path / "own").mkdir()
    pinned = text.replace('newTag: "1"', f'digest: "{digest}"')
    assert pinned != text
    (tmp_path / "own/kustomization.yaml").write_text(pinned)
    made = list(yaml.safe_load_all(output(kubectl(), "kustomize", str(tmp_path / "own"))))
    [found] = [one["spec"]["rayClusterConfig"] for one in made if one["kind"] == "RayService"]
    images = {container_of(group)["image"] for group in groups_of(found).values()}
    assert images == {f"registry.example.com/modelless@{digest}"}
    stages = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert stages == ["$PYTHON", "$PYTHON"]


def test_prometheus_reads_what_the_gateways_serve() -> None:
    monitor, policy = built("monitoring")
    [place] = monitor["spec"]["podMetricsEndpoints"]
    for overlay in OVERLAYS:
        group = groups(overlay)["gateway"]
        labels = group["template"]["metadata"]["labels"].items()
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels
        ports = {one["name"]: one["containerPort"] for one in container_of(group)["ports"]}
        assert policy["spec"]["ingress"][0]["ports"] == [{"port": ports[place["port"]]}]
    [job] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert place["path"] == job["metrics_path"]
    assert place["relabelings"] == [{"targetLabel": "job", "replacement": job["job_name"]}]


def test_the_readme_makes_a_rule_for_prometheus_operator_of_the_alerts(tmp_path: Path) -> None:
    """Its commands, with a `kubectl` that keeps what it is given."""
    commands = readme_block("With Prometheus' operator in the namespace")
    kubectl = 'kubectl() { case "$*" in *"-f -") cat > rule.yaml;; *) echo "$*" >> said;; esac; }'
    command = f"cd {tmp_path}; {kubectl}; ln -s {DEPLOY} deploy; {commands}"
    modelless = (
        "modelless() { "
        + f"PYTHONPATH={ROOT} {sys.executable} -m controlplane.cli.main"
        + ' "$@"; }'
    )
    done = subprocess.run(
        ["bash", "-ec", f"{modelless}; {command}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rule = yaml.safe_load((tmp_path / "rule.yaml").read_text())
    assert (rule["kind"], rule["metadata"]["name"]) == ("PrometheusRule", "modelless")
    assert rule["spec"] == yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    said = (tmp_path / "said").read_text()
    [keys] = re.findall(r"generic modelless-client-keys --from-file=(\S+)", said)
    [key] = re.findall(r"generic modelless-metrics --from-file=(\S+)", said)
    secret = Path(key).read_text().strip()
    assert [one.role for one in client_keys.read(Path(keys))] == [client_keys.Role.METRICS]
    assert client_keys.digest_of(secret.encode()) == client_keys.read(Path(keys))[0].digest
    [monitor, _] = built("monitoring")
    [place] = monitor["spec"]["podMetricsEndpoints"]
    assert place["authorization"]["credentials"] == {
        "name": "modelless-metrics",
        "key": Path(key).name,
    }
    shutil.rmtree(Path(keys).parent)


def test_zones_lose_their_part_alone() -> None:
    pods = groups("overlays/zones")
    [zone] = [one for one in container_of(pods["cpu-4"])["env"] if one["name"] == "RAY_NODE_ZONE"]
    label = "metadata.labels['topology.kubernetes.io/zone']"
    assert zone["valueFrom"] == {"fieldRef": {"fieldPath": label}}
    for name in ("gateway", "cpu-4"):
        template = pods[name]["template"]
        for rule in template["spec"]["topologySpreadConstraints"]:
            selected = rule["labelSelector"]["matchLabels"]
            assert selected.items() <= template["metadata"]["labels"].items()
            assert rule["maxSkew"] == 1
