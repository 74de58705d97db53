"""``deploy/rayservice.yaml`` as KubeRay runs it: head, two gateways, a worker and one more.

The pods share no directory: what a gateway registers is kept by the head and loaded by a worker.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Load
from tests.integration.digits import GOOD
from tests.integration.machines.kuberay import KubeRay, told
from tests.integration.machines.lab import lab, register

pytestmark = [pytest.mark.integration, pytest.mark.campaign]


@pytest.fixture(scope="module")
def service(family: Path) -> Iterator[KubeRay]:
    """All pods but a worker's, with the applications handed over."""
    with lab() as made:
        running = KubeRay(made)
        try:
            running.start()
            yield running
        finally:
            running.stop()


def test_all_gateways_become_ready_with_an_empty_catalog(service: KubeRay) -> None:
    gateways = service.of("gateway")
    assert len(gateways) == 2
    try:
        service.dashboard().until(
            lambda: all(pod.is_ready() for pod in gateways), "the gateways are ready", 240
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(service.applications())}") from error
    others = [pod for pod in service.pods if pod not in gateways]
    assert [p for pod in others for _, p in pod.machine.listening() if p == 8000] == []


def test_the_node_finds_every_pod_alive(service: KubeRay) -> None:
    pods = [*service.of("gateway"), *service.of("cpu-4")]
    service.dashboard().until(lambda: all(pod.is_alive() for pod in pods), "all pods are alive")
    assert all(pod.is_ready() for pod in service.of("cpu-4"))


def test_nothing_beside_the_volumes_of_a_pod_can_be_written(service: KubeRay) -> None:
    places = [mount["mountPath"] for mount in service.head.container["volumeMounts"]]
    assert {"/state", "/tmp"} <= set(places)
    for pod in service.pods:
        assert pod.runs(["touch", "/tmp/written"])
        assert not pod.runs(["touch", "/etc/written"])


def test_the_first_model_is_registered_through_the_service_and_answers(
    service: KubeRay, family: Path
) -> None:
    gateway = service.service()
    assert gateway.request("GET", "/v1/tasks", headers={"Authorization": ""}).status == 401
    assert gateway.get("/v1/tasks") == {"tasks": []}
    operation = register(gateway, family, "mlp-small")
    assert operation["state"] == "succeeded", operation
    gateway.until(lambda: gateway.get("/v2/models/digits/ready"), "the task is ready")
    for pod in service.of("gateway"):
        gateway.at = pod.machine.address
        assert gateway.query([[0.0] * 64]).status == 200


def test_a_pod_has_a_copy_of_what_it_loads_and_no_secret_on_its_disk(service: KubeRay) -> None:
    head, [worker] = service.head.state, [pod.state for pod in service.of("cpu-4")]
    kept = {path.name: path.read_bytes() for path in (head / "artifacts").glob("??/??/*")}
    copies = {path.name: path.read_bytes() for path in (worker / "copies/files").glob("??/??/*")}
    assert copies
    assert copies.items() <= kept.items()
    given = service.secrets["modelless"].values()
    secrets = [(head / "channel.secret").read_bytes(), *(secret.encode() for secret in given)]
    files = [path for path in worker.rglob("*") if path.is_file()]
    assert [p for p in files if any(secret in p.read_bytes() for secret in secrets)] == []
    assert not (worker / "artifacts").exists()


def test_a_pod_joins_under_load_and_goes_on_when_the_node_of_another_dies(
    service: KubeRay,
) -> None:
    gateway = service.service()
    with Load(gateway, GOOD, clients=4, pause_s=0.05) as load:
        gateway.until(lambda: load.snapshot()["200"] > 100, "load")
        service.add(service.group("cpu-4"))
        gateway.until(lambda: len(gateway.workers()) == 2, "two workers")
        gateway.until(lambda: all(gateway.ready(w) for w in gateway.workers()), "both loaded")
        service.lose(service.of("cpu-4")[0])
        gateway.until(lambda: len(gateway.workers()) == 1, "one worker is left")
        before = load.snapshot()["200"]
        gateway.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.untyped == []


def test_a_pod_that_joins_takes_the_place_of_the_lost_one(service: KubeRay) -> None:
    gateway = service.service()
    service.add(service.group("cpu-4"))
    gateway.until(lambda: len(gateway.workers()) == 2, "two workers again")
    gateway.until(lambda: all(gateway.ready(w) for w in gateway.workers()), "both loaded")


def test_a_pod_that_is_deleted_ends_when_its_queries_are_answered(service: KubeRay) -> None:
    gateway = service.service()
    with Load(gateway, GOOD, clients=4, pause_s=0.05) as load:
        gateway.until(lambda: load.snapshot()["200"] > 100, "load")
        assert service.end(service.of("cpu-4")[0]) is not None
        before = load.snapshot()["200"]
        gateway.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.outcomes.keys() == {"200"}
    told = gateway.get("/v1/events?limit=100")["events"]
    [how] = [one["message"] for one in told if one["kind"] == "worker_left"]
    assert how.endswith("is gone: its node goes")
    service.add(service.group("cpu-4"))
    gateway.until(lambda: len(gateway.workers()) == 2, "two workers again")


def test_queries_go_on_while_the_head_is_replaced(service: KubeRay) -> None:
    gateway = service.service()
    gateway.client = service.of("cpu-4")[0].machine  # the head's goes
    rest = [pod for pod in service.pods if pod is not service.head]
    with Load(gateway, GOOD, clients=4, pause_s=0.05) as load:
        gateway.until(lambda: load.snapshot()["200"] > 100, "load")
        service.replace_head()
        gateway.until(
            lambda: [
                one["subject"]
                for one in gateway.get("/v1/events?kind=controller_started")["events"]
            ].count("epoch 2"),
            "the next control loop",
        )
        before = load.snapshot()["200"]
        gateway.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.outcomes.keys() == {"200"}
    assert [pod.starts for pod in rest] == [1] * len(rest)
    gateway.until(
        lambda: gateway.get("/v1/plan")["standing"]["level"] == "as_planned", "all is as planned"
    )
