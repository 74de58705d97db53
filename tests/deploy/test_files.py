"""The deployment files against the schemas of Ray, Ray Serve and our own settings."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml

from controlplane.cluster.processes.ray_environment import LOGS
from controlplane.cluster.serve_applications import CONTROLLER_APP, GATEWAY_APP, WORKER_APP
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.http.access import Access
from controlplane.gateway.reports.metrics import GatewayCollector
from controlplane.http_errors import CLIENT_GONE, STATUS
from controlplane.settings import Settings
from tests.deploy.files import (
    TOKEN,
    container_of,
    documents,
    groups_of,
    ray_cluster,
    ray_service,
    serve_config,
    settings_of,
)
from tests.services import missing

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted([*DEPLOY.glob("*.yaml"), *DEPLOY.glob("*.yml")])
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def groups() -> dict[str, Any]:
    return groups_of(ray_service()["rayClusterConfig"])


def pods() -> dict[str, Any]:
    """The one Ray container of each group of pods, by group."""
    return {name: container_of(group) for name, group in groups().items()}


def environment(group: str) -> dict[str, str]:
    """Plain values; a secret shows as ``secret/key``."""
    values = {}
    for variable in pods()[group]["env"]:
        if "value" in variable:
            values[variable["name"]] = variable["value"]
        else:
            reference = variable["valueFrom"]["secretKeyRef"]
            values[variable["name"]] = f"{reference['name']}/{reference['key']}"
    return values


def commands() -> Iterator[str]:
    cluster = ray_cluster()
    yield from cluster["head_start_ray_commands"]
    yield from cluster["worker_start_ray_commands"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_every_file_is_yaml(path: Path) -> None:
    assert all(isinstance(one, dict) for one in yaml.safe_load_all(path.read_text()))


def test_there_are_files() -> None:
    assert {path.name for path in FILES} >= {"ray-cluster.yaml", "rayservice.yaml"}


# -- ray up -------------------------------------------------------------------------------------


def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(ray_cluster()))


def test_the_schema_would_refuse_a_wrong_field() -> None:
    import ray.autoscaler

    jsonschema = import_module("jsonschema")

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(ray_cluster(), schema)
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        jsonschema.validate(ray_cluster() | {"max_worker": 2}, schema)


def test_every_ray_start_asks_for_the_token() -> None:
    starts = [command for command in commands() if "ray start" in command]

    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in start.split("ray start")[0] for start in starts)


def test_what_answers_queries_yields_to_no_other_program() -> None:
    starts = [command for command in commands() if "ray start" in command]

    assert all("RAY_worker_niceness=0" in start.split("ray start")[0] for start in starts)


def test_logs_of_a_cluster_are_as_small_as_those_of_one_machine() -> None:
    bytes_each = LOGS["RAY_ROTATION_MAX_BYTES"]
    starts = [command for command in commands() if "ray start" in command]

    assert all(f"RAY_ROTATION_MAX_BYTES={bytes_each}" in start.split() for start in starts)
    assert {environment(group)["RAY_ROTATION_MAX_BYTES"] for group in groups()} == {bytes_each}


def test_the_head_listens_on_loopback_only() -> None:
    head = " ".join(ray_cluster()["head_start_ray_commands"])

    assert re.findall(r"--dashboard-host=(\S+)", head) == ["127.0.0.1"]
    assert re.findall(r"MODELLESS_HOST=(\S+)", head) == ["127.0.0.1"]


def test_the_local_provider_has_as_many_workers_as_it_may_start() -> None:
    cluster = ray_cluster()

    assert cluster["max_workers"] == len(cluster["provider"]["worker_ips"])


def test_the_start_waits_for_the_workers_that_come_by_themselves() -> None:
    [up] = [command for command in commands() if "modelless up" in command]
    workers = ray_cluster()["provider"]["worker_ips"]

    assert re.findall(r"MODELLESS_NODES=(\d+)", up) == [str(len(workers))]


# -- KubeRay ------------------------------------------------------------------------------------


def test_ray_serve_accepts_the_applications() -> None:
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(serve_config())

    assert config.proxy_location == "Disabled"
    assert config.http_options.host in LOOPBACK
    assert {app.name: app.import_path for app in config.applications} == {
        WORKER_APP + "cpu-4": "controlplane.app:worker",
        GATEWAY_APP: "controlplane.app:gateway",
        CONTROLLER_APP: "controlplane.app:controller",
    }
    assert {app.external_scaler_enabled for app in config.applications} == {True}
    assert {app.route_prefix for app in config.applications} == {None}


def test_serve_knows_every_field_of_the_applications() -> None:
    from ray.serve.schema import DeploymentSchema, ServeApplicationSchema, ServeDeploySchema

    config = serve_config()
    applications = config["applications"]
    deployments = [one for app in applications for one in app.get("deployments", ())]

    assert config.keys() <= ServeDeploySchema.model_fields.keys()
    assert all(app.keys() <= ServeApplicationSchema.model_fields.keys() for app in applications)
    assert all(one.keys() <= DeploymentSchema.model_fields.keys() for one in deployments)


def test_the_import_paths_lead_to_something() -> None:
    for app in serve_config()["applications"]:
        module, _, name = app["import_path"].partition(":")
        assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize("group", ["head", "gateway", "cpu-4"])
def test_every_ray_pod_has_the_token_and_a_place_for_its_state(group: str) -> None:
    values = environment(group)

    assert values["RAY_AUTH_MODE"] == "token"
    assert values["RAY_worker_niceness"] == "0"
    assert values["RAY_AUTH_TOKEN"] == "modelless-ray/auth_token"
    mounts = {mount["mountPath"]: mount["name"] for mount in pods()[group]["volumeMounts"]}
    assert mounts[values["MODELLESS_STATE_DIR"]] == "state"


def test_kuberay_finds_the_ports_that_it_looks_for() -> None:
    """By their names. Where ports are listed and none is `serve`, it makes no Service for Ray
    Serve, and never takes the RayService for ready."""
    ports = {one["name"]: one["containerPort"] for one in pods()["head"]["ports"]}
    assert ports == {"gcs-server": 6379, "dashboard": 8265, "serve": 8000}


@pytest.mark.parametrize("group", ["head", "gateway", "cpu-4"])
def test_clients_keys_come_from_a_secret_that_need_not_be_there(group: str) -> None:
    mounts = {mount["mountPath"]: mount["name"] for mount in pods()[group]["volumeMounts"]}
    path = PurePath(environment(group)["MODELLESS_CLIENT_KEYS"])
    volumes = groups()[group]["template"]["spec"]["volumes"]
    [volume] = [one for one in volumes if one["name"] == mounts[str(path.parent)]]
    assert volume["secret"] == {"secretName": "modelless-client-keys", "optional": True}


def test_the_head_alone_mounts_the_claim() -> None:
    volumes = {
        name: next(v for v in group["template"]["spec"]["volumes"] if v["name"] == "state")
        for name, group in groups().items()
    }
    assert [name for name, one in volumes.items() if "persistentVolumeClaim" in one] == ["head"]
    settings = Settings.model_validate({})
    room = int(volumes["cpu-4"]["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 1024
    assert room > settings.artifact_cache_mib


def test_a_machine_needs_the_token_and_no_other_file_of_the_head() -> None:
    mounts = {place for place, source in ray_cluster()["file_mounts"].items() if source != "."}
    starts = [command for command in commands() if "ray start" in command]

    assert mounts == {"~/.modelless/ray.token"}
    assert all("RAY_AUTH_TOKEN_PATH=~/.modelless/ray.token" in start for start in starts)


def test_the_operator_uses_the_same_token() -> None:
    assert ray_service()["rayClusterConfig"]["authOptions"] == {
        "mode": "token",
        "secretName": "modelless-ray",
    }


def test_urls_and_tokens_come_from_a_secret() -> None:
    values = environment("gateway")

    assert values["MODELLESS_DATABASE_URL"] == "modelless/database_url"
    assert values["MODELLESS_REDIS_URL"] == "modelless/redis_url"
    assert values["MODELLESS_API_TOKEN"] == "modelless/api_token"


def test_the_worker_application_is_what_the_settings_say() -> None:
    settings = settings_of(groups()["head"])
    [app] = [one for one in serve_config()["applications"] if one["name"].startswith(WORKER_APP)]

    [kind] = settings.kinds
    assert app["args"] == {
        "device_kind": kind.name,
        "cores": kind.cores,
        "memory_mib": kind.memory_mib,
        "replicas": kind.most,
        "listen": settings.listen_channel,
    }
    cpu = pods()["cpu-4"]["resources"]["limits"]["cpu"]
    assert int(cpu) == kind.cores


def test_a_gateway_is_ready_when_it_says_so() -> None:
    [shell, _, script] = pods()["gateway"]["readinessProbe"]["exec"]["command"]

    assert shell == "sh"
    assert script.endswith(" http://127.0.0.1:$MODELLESS_PORT/v2/health/ready")
    assert environment("gateway")["MODELLESS_PORT"] == "8000"
    assert {"containerPort": 8000, "name": "http"} in pods()["gateway"]["ports"]
    assert environment("gateway")["MODELLESS_GRPC_PORT"] == "8001"
    assert {"containerPort": 8001, "name": "grpc"} in pods()["gateway"]["ports"]


def test_the_service_leads_to_the_gateways() -> None:
    [service] = [one for one in documents("rayservice.yaml") if one["kind"] == "Service"]
    labels = groups()["gateway"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["type"] == "ClusterIP"


def test_every_pod_is_behind_a_network_policy() -> None:
    policies = [one for one in documents("rayservice.yaml") if one["kind"] == "NetworkPolicy"]
    every = policies[0]["spec"]["podSelector"]["matchLabels"]
    labels = [group["template"]["metadata"]["labels"] for group in groups().values()]

    assert all(every.items() <= one.items() for one in labels)
    # A rule without "from" would let every pod in.
    assert all(rule["from"] for policy in policies for rule in policy["spec"]["ingress"])


# -- all of them --------------------------------------------------------------------------------


def test_every_setting_that_is_named_exists() -> None:
    text = "".join(path.read_text() for path in DEPLOY.rglob("*") if path.is_file())
    named = set(re.findall(r"MODELLESS_([A-Z_]+)", text))

    assert named
    assert {name.lower() for name in named} <= Settings.model_fields.keys()


def test_compose_publishes_ports_on_loopback_only() -> None:
    services = documents("compose.yaml")[0]["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]

    assert ports
    assert {port.split(":")[0] for port in ports} == {"127.0.0.1"}


def test_all_of_compose_comes_back_when_the_machine_does() -> None:
    services = documents("compose.yaml")[0]["services"]
    assert {one.get("restart") for one in services.values()} == {"unless-stopped"}


def declared(values: dict[str, str]) -> Settings:
    """The settings of a file, with a token in the place of its secrets.

    Raises:
        ValidationError: a gateway with them would refuse to start.
    """
    names = {
        name.removeprefix("MODELLESS_").lower(): value
        for name, value in values.items()
        if name.startswith("MODELLESS_") and not name.endswith("_URL")
    }
    return Settings.model_validate(names | ({"api_token": TOKEN} if "api_token" in names else {}))


@pytest.mark.parametrize("group", ["head", "gateway", "cpu-4"])
def test_every_pod_declares_what_listening_on_all_addresses_needs(group: str) -> None:
    settings = declared(environment(group))
    [service] = [one for one in documents("rayservice.yaml") if one["kind"] == "Service"]
    name, namespace = service["metadata"]["name"], "modelless"
    rules = Access(settings)

    assert settings.host == "0.0.0.0"
    for host in (name, f"{name}.{namespace}", f"{name}.{namespace}.svc.cluster.local"):
        assert rules.host_allowed(f"{host}:8000".encode())
    assert not rules.host_allowed(b"evil.example:8000")


def test_compose_declares_what_listening_on_all_addresses_needs() -> None:
    service = documents("compose.yaml")[0]["services"]["modelless"]
    settings = declared(service["environment"])
    [job] = documents("prometheus.yml")[0]["scrape_configs"]
    rules = Access(settings)

    assert settings.host == "0.0.0.0"
    for host in (job["static_configs"][0]["targets"][0], "localhost:8000", "127.0.0.1:8000"):
        assert rules.host_allowed(host.encode())
    assert not rules.host_allowed(b"evil.example:8000")


def test_the_cluster_file_declares_what_its_addresses_need() -> None:
    for command in commands():
        values = dict(re.findall(r"(MODELLESS_[A-Z_]+)=(\S+)", command))
        declared(values)


def test_prometheus_scrapes_the_service_of_compose() -> None:
    [job] = documents("prometheus.yml")[0]["scrape_configs"]
    target = job["static_configs"][0]["targets"][0]

    assert target.partition(":")[0] in documents("compose.yaml")[0]["services"]
    assert job["metrics_path"] == "/metrics"


def test_prometheus_takes_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool")

    said = subprocess.run(
        [promtool, "check", "rules", str(DEPLOY / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 0, said.stdout + said.stderr


def test_alerts_ask_for_metrics_labels_and_codes_that_there_are() -> None:
    families: list[Any] = list(GatewayCollector(Counters()).collect())
    labels = {
        f"{family.name}_total" if family.type == "counter" else family.name: set(family._labelnames)
        for family in families
    }
    rules = [rule for group in documents("alerts.yml")[0]["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    asked = [rule["expr"] for rule in rules if "up{" not in rule["expr"]]
    assert asked

    by_task = r"\w+:modelless_\w+:\w+"
    assert set(re.findall(by_task, " ".join(asked))) <= recorded
    for text in (re.sub(by_task, "modelless_queries_infeasible_total", one) for one in asked):
        for name, given in re.findall(r"(modelless_\w+)(?:\{([^}]*)\})?", text):
            assert set(re.findall(r"(\w+)=~?\"", given)) <= labels[name]
        by = {label for one in re.findall(r"by \(([^)]*)\)", text) for label in one.split(", ")}
        assert by <= set.union(*(labels[name] for name in re.findall(r"modelless_\w+", text)))
    choices = "|".join(re.findall(r'code=~?"([^"]*)"', " ".join(asked)))
    codes = set(choices.split("|"))
    assert codes <= STATUS.keys() | {CLIENT_GONE}


def test_compose_gives_prometheus_the_files_that_it_names() -> None:
    service = documents("compose.yaml")[0]["services"]["prometheus"]
    there = {each["target"] for each in service["configs"]}
    assert set(documents("prometheus.yml")[0]["rule_files"]) <= there
    [job] = documents("prometheus.yml")[0]["scrape_configs"]
    assert job["authorization"]["credentials_file"] in there


def test_prometheus_of_compose_has_no_operator_s_token() -> None:
    [document] = documents("compose.yaml")
    sources = {each["source"] for each in document["services"]["prometheus"]["configs"]}
    assert all("environment" not in document["configs"][source] for source in sources)
    assert "environment" not in document["services"]["prometheus"]


def test_the_image_copies_every_package() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    packages = ("variants", "planner", "workers", "profiler", "controlplane")

    assert [name for name in packages if f"COPY {name} {name}\n" not in text] == []
