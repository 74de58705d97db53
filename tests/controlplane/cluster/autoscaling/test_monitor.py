"""The autoscaler as a process, and nodes as Ray lists them."""

import json
import subprocess
import sys
from pathlib import Path

from controlplane.cluster.autoscaling.monitor import (
    NEWER,
    OLDER,
    autoscaler_with,
    control_store_of,
    monitors,
)
from controlplane.cluster.autoscaling.node_types import Autoscaler, NodeType
from controlplane.cluster.autoscaling.ray_autoscaler import ClusterNode, cluster_node
from controlplane.slices import filled_in, slices_of

FILE = {
    "max_workers": 2,
    "available_node_types": {"small": {"resources": {"CPU": 2}, "max_workers": 2}},
}


def arguments(program: str, config: str = "") -> list[str]:
    rest = [f"--autoscaling-config={config}"] if config else []
    return ["python", "-u", f"/ray/{program}", "--gcs-address=10.0.0.1:6379", *rest]


def test_one_with_a_file_starts_what_that_says(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(FILE))
    types = (NodeType(name="small", least=0, most=2, cores=2),)

    assert autoscaler_with(arguments(NEWER, str(path))) == Autoscaler(types=types, most=2)
    older = autoscaler_with(arguments(OLDER, str(path)))
    assert older == Autoscaler(types=types, most=2, reads_labels=False)
    assert control_store_of(arguments(NEWER)) == "10.0.0.1:6379"


def test_one_without_a_file_starts_nothing() -> None:
    assert autoscaler_with(arguments(NEWER)) is None


def test_of_one_whose_file_cannot_be_read_the_types_are_not_known(tmp_path: Path) -> None:
    for text in (None, "a: [", "just words", "{available_node_types: 7}"):
        path = tmp_path / f"file-{len(text or '')}"
        if text is not None:
            path.write_text(text)
        assert autoscaler_with(arguments(NEWER, str(path))) == Autoscaler()


def test_processes_of_this_machine_are_looked_at(tmp_path: Path) -> None:
    program = tmp_path / NEWER
    program.parent.mkdir(parents=True)
    program.write_text("import time; print('up', flush=True); time.sleep(600)")
    command = [sys.executable, "-u", str(program), "--gcs-address=here:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        found = [one for one in monitors() if control_store_of(one) == "here:1"]
        process.kill()
    assert found == [command]


def test_a_node_as_ray_lists_it() -> None:
    listed = {
        "NodeID": "ab" * 28,
        "NodeManagerHostname": "host",
        "NodeManagerAddress": "10.0.0.2",
        "Resources": {"CPU": 4.0, "GPU": 1.0, "memory": 1.0},
        "Labels": {"modelless.io/kind": "cpu-4-spot"},
    }
    stays, goes = cluster_node(listed), cluster_node({**listed, "DrainsUntilMs": 5_000})

    assert (stays.name, stays.cores, stays.gpus) == ("host (10.0.0.2, abababab)", 4, 1)
    assert (stays.is_head, stays.drains_until_s, goes.drains_until_s) == (False, None, 5.0)


def test_whether_a_node_has_room_for_a_worker_of_a_kind() -> None:
    kinds = filled_in(
        slices_of("cpu-4,cpu-8,cpu-4-spot:nodes=modelless.io/kind=cpu-4-spot,cpu-2-old:nodes=rack=7"),
        memory_mib=1, all_memory_mib=1, usd_per_core_hour=0.04, elastic=False,
    )  # fmt: skip
    labels = {"modelless.io/kind": "cpu-4-spot"}
    node = ClusterNode(id="a", host="a", address="10.0.0.2", cores=4, labels=labels)

    assert [one.name for one in kinds if node.has_room_for(one)] == ["cpu-4", "cpu-4-spot"]
