"""The overlays for Kubernetes as ``kubectl`` builds them, against the schemas of both."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster.serve_applications import GATEWAY_APP, WORKER_APP
from tests.clients import program
from tests.deploy.files import DEPLOY, container_of, groups_of, settings_of

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
    """What ``kubectl kustomize`` makes of an overlay. Debian's own kubectl is too old for them."""
    kubectl = shutil.which("kubectl")
    told = "" if kubectl is None else output(kubectl, "version", "--client")
    version = told.partition("Kustomize Version: v")[2].partition(".")[0]
    if kubectl is None or not version.isdigit() or int(version) < 5:
        # No registry of packages has one to install: this skips in CI as well.
        pytest.skip("no kubectl with kustomize 5 is installed")
    return list(yaml.safe_load_all(output(kubectl, "kustomize", str(FOLDER / overlay))))


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
