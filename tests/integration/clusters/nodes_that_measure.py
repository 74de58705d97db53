"""Measuring ordered on two raylets of one machine; writes what came of it into ``HOME/found.json``.

``python -m tests.integration.clusters.nodes_that_measure HOME``. A process of its own, because Ray
reads its environment once. The head and the node both have a core, and only the node the label of
the kind.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

LABEL = {"rack": "7"}
ENDS_S = 300.0
"""A process that is killed ends within a moment, on a machine that others keep busy, too."""


def main(home: Path) -> None:
    os.environ |= {
        "MODELLESS_STATE_DIR": str(home),
        "MODELLESS_RAY_ADDRESS": "auto",
        "MODELLESS_SLICES": "0-1xcpu-1:nodes=rack=7",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    import ray
    from ray.cluster_utils import Cluster

    from controlplane.cluster.one_machine.single_machine import bare_ray

    head = {"num_cpus": 1, "include_dashboard": False}
    with bare_ray():
        cluster = Cluster(
            initialize_head=True, connect=True, head_node_args=head, shutdown_at_exit=False
        )
    try:
        with bare_ray():
            node = cluster.add_node(num_cpus=1, labels=LABEL, node_ip_address="127.0.0.2")
        found = asyncio.run(_measure(home, cluster, node))
        (home / "found.json").write_text(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


async def _measure(home: Path, cluster: Any, node: Any) -> dict[str, Any]:
    from controlplane.cluster.measuring_nodes import MeasuringNodes
    from controlplane.cluster.sending_settings import send
    from controlplane.profiling.due.orders import MeasuringOrder
    from controlplane.profiling.due.profiles import Cause, DueProfile
    from controlplane.settings import load_settings
    from tests.controlplane.builders import DIGITS
    from tests.variants.catalog_builders import kind, variant
    from variants.artifacts.store import FileArtifactStore
    from variants.errors import ModellessError
    from workers.channel.secret import ensure_secret

    settings = load_settings()
    ensure_secret(settings.secret_path)  # as `modelless up` does
    nodes = MeasuringNodes(send(settings), lambda: settings)
    hasty = MeasuringNodes(send(settings), lambda: settings, look_every_s=0.0)
    store = FileArtifactStore(settings.artifacts_dir)
    source = home / "model.txt"
    source.write_text("a model")
    endless = variant(runtime="echo", artifact=store.put(source), options={"latency_ms": "60000"})
    source.write_text("another one")
    broken = replace(endless, artifact=store.put(source))
    store.path(broken.artifact).chmod(0o600)
    store.path(broken.artifact).write_text("other bytes")
    begun = asyncio.Event()
    placed: list[str] = []

    def begins(node: str) -> None:
        placed.append(node)
        begun.set()

    async def error_of(one: Any, node: str, begins: Callable[[str], None]) -> str:
        due = DueProfile(variant=one, kind=kind(), cause=Cause.MISSING, reason="")
        try:
            await nodes.measure(MeasuringOrder(task=DIGITS, due=due), node, begins)
        except ModellessError as error:
            return f"{error.code}: {error.message}"
        return ""

    head = cluster.head_node.node_id
    refusing = asyncio.create_task(error_of(broken, head, lambda _: None))
    losing = asyncio.create_task(error_of(endless, "", begins))
    await begun.wait()
    damaged = await refusing
    await asyncio.to_thread(_until_one_is_left)
    beside = asyncio.Event()
    yielding = asyncio.create_task(error_of(endless, head, lambda _: beside.set()))
    await beside.wait()
    scheduled = sorted(os.sched_getscheduler(pid) for pid in _benches())
    yielding.cancel()
    cluster.remove_node(node, allow_graceful=False)
    return {
        "bound": placed == [node.node_id],
        "damaged": damaged,
        "scheduled": scheduled,
        "lost": await losing,
        "stay": [await hasty.stays(head), await nodes.stays(node.node_id)],
        "classes": len(_exported_classes()),
    }


def _benches() -> list[int]:
    """The processes of this cluster that measure."""
    ours = f"MODELLESS_STATE_DIR={os.environ['MODELLESS_STATE_DIR']}".encode()
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            measures = (one / "cmdline").read_bytes().startswith(b"ray::NodeBench")
            if measures and ours in (one / "environ").read_bytes().split(b"\0"):
                found.append(int(one.name))
    return found


def _until_one_is_left() -> None:
    """The process that refused takes a moment to end."""
    deadline_s = time.monotonic() + ENDS_S
    while len(_benches()) > 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def _exported_classes() -> list[bytes]:
    """The actor classes whose code Ray's control store keeps."""
    from ray._private import ray_constants
    from ray._private.worker import global_worker

    keys: list[bytes] = global_worker.gcs_client.internal_kv_keys(
        b"ActorClass:", ray_constants.KV_NAMESPACE_FUNCTION_TABLE
    )
    return keys


if __name__ == "__main__":
    main(Path(sys.argv[1]))
