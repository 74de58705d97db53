"""What is said of a worker in words."""

from controlplane.views.worker_schemas import WorkerSchema
from workers.process.release import release


def worker(of_release: str) -> WorkerSchema:
    said = {
        "worker": "w", "device_kind": "cpu-2", "memory_mib": 1.0, "reserved_mib": 0.0,
        "draining": False, "backlog_us": 0, "busy_ratio": 0.0, "replicas": [],
    }  # fmt: skip
    return WorkerSchema.model_validate(said | {"release": of_release})


def test_a_worker_with_other_code_than_the_gateway_is_told() -> None:
    [told] = worker("0.2.0+0123456789ab").warnings
    assert told == (
        f"it runs modelless 0.2.0+0123456789ab, and the gateway that was asked {release()}: install"
        " the same on each machine, or let `modelless upgrade` finish"
    )


def test_one_with_the_same_is_not_nor_one_that_does_not_say() -> None:
    assert worker(release()).warnings == worker("").warnings == []
