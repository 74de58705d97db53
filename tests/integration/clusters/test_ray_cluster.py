"""``deploy/ray-cluster.yaml`` on three machines, by its own commands, and a fourth one later.

They share no directory.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Load, title
from tests.integration.digits import GOOD, check_stopped_worker
from tests.integration.machines.lab import PASSWORD, lab, register
from tests.integration.machines.ray_up import RayUp, kill_raylet

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

TYPED = {"200", "COLD", "NO_WORKERS", "OVERLOADED", "REPLICA_LOST", "DEADLINE_EXCEEDED"}


@pytest.fixture(scope="module")
def cluster(family: Path) -> Iterator[RayUp]:
    """A head and its workers."""
    with lab() as made:
        cluster = RayUp(made)
        cluster.prepare()
        cluster.start()
        yield cluster


def test_the_start_waits_for_the_machines_that_join_during_it(cluster: RayUp) -> None:
    gateway, told = cluster.gateway, " ".join(cluster.told.split())
    names = [worker.name for worker in cluster.workers]

    assert "of 2 nodes have joined; waiting for the others" in told
    assert "Nodes 2 with 8 cores: 2x cpu-4" in told
    gateway.until(lambda: gateway.get("/v1/devices")["devices"][0]["nodes"], "a look at the nodes")
    [kind] = gateway.get("/v1/devices")["devices"]
    assert (kind["name"], kind["source"], kind["nodes"]) == ("cpu-4", "found", names)


def test_the_first_model_is_registered_and_answers(cluster: RayUp, family: Path) -> None:
    gateway = cluster.gateway
    assert gateway.get("/v2/health/ready") == {"ready": True}
    assert gateway.get("/v1/tasks") == {"tasks": []}
    operation = register(gateway, family, "mlp-small")
    assert operation["state"] == "succeeded", operation
    gateway.until(lambda: gateway.get("/v2/models/digits/ready"), "the task is ready")
    assert gateway.query([[0.0] * 64]).status == 200


def test_a_worker_has_a_copy_of_what_it_loads_and_no_secret_on_its_disk(cluster: RayUp) -> None:
    head, worker = (
        one.folder / "tmp/home/.modelless" for one in (cluster.head, cluster.workers[0])
    )
    kept = {path.name: path.read_bytes() for path in (head / "artifacts").glob("??/??/*")}
    copies = {path.name: path.read_bytes() for path in (worker / "copies/files").glob("??/??/*")}
    assert copies
    assert copies.items() <= kept.items()
    secrets = [(head / "channel.secret").read_bytes(), PASSWORD.encode()]
    files = [path for path in worker.rglob("*") if path.is_file() and path.name != "ray.token"]
    assert [p for p in files if any(secret in p.read_bytes() for secret in secrets)] == []
    assert not (worker / "artifacts").exists()


def test_the_gateway_listens_where_the_documents_say(cluster: RayUp) -> None:
    assert ("127.0.0.1", 8000) in cluster.head.listening()
    others = [worker.listening() for worker in cluster.workers]
    assert [port for found in others for _, port in found if port == 8000] == []


def test_a_worker_that_hangs_on_another_machine_is_ended_and_replaced(cluster: RayUp) -> None:
    gateway = cluster.gateway
    gateway.until(lambda: sum(map(bool, map(gateway.ready, gateway.workers()))) == 2, "two workers")
    [worker] = [
        process
        for process in cluster.workers[0].processes()
        if title(process).startswith("ray::ServeReplica:modelless-worker")
    ]
    check_stopped_worker(gateway, lambda: worker.send_signal(signal.SIGSTOP))


def test_a_machine_dies_under_load_and_one_that_joins_takes_its_place(cluster: RayUp) -> None:
    gateway = cluster.gateway
    gateway.until(lambda: len(gateway.workers()) == 2, "two workers")
    with Load(gateway, GOOD, clients=4, pause_s=0.05) as load:
        gateway.until(lambda: load.snapshot()["200"] > 100, "load")
        kill_raylet(cluster.workers[0])
        gateway.until(lambda: len(gateway.workers()) == 1, "one worker is left")
        before = load.snapshot()["200"]
        gateway.until(lambda: load.snapshot()["200"] > before + 100, "service goes on")
        cluster.add_workers(1)
        gateway.until(lambda: len(gateway.workers()) == 2, "two workers again")
        gateway.until(lambda: all(gateway.ready(w) for w in gateway.workers()), "both loaded")
    assert load.untyped == []
    assert load.outcomes.keys() <= TYPED
