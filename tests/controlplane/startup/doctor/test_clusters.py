"""What the doctor says on a machine of a cluster where `modelless up` does not run."""

import shutil
import socket
import subprocess
from contextlib import closing
from pathlib import Path

from controlplane.controller.other_installations import owner_of
from controlplane.settings import load_settings
from controlplane.startup.checks import services
from controlplane.startup.checks.finding import fine
from controlplane.timestamps import timestamp
from variants.catalog.sql import open_catalog
from variants.types import TickRecord


def test_a_port_that_a_gateway_of_the_cluster_has_is_no_problem(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = load_settings(state_dir=tmp_path, ray_address="auto", port=port, grpc_port=0)
        # As Ray calls the process of a gateway.
        title = "ray::ServeReplica:modelless-gateway:gateway"
        with subprocess.Popen([title, "300"], executable=sleep) as gateway:
            try:
                there = list(services.port(settings))
            finally:
                gateway.kill()

    where = f"127.0.0.1:{port}"
    assert there == [fine("port", f"{where} is served by a gateway of the cluster")]


def test_the_head_of_the_own_cluster_is_no_other_installation(tmp_path: Path) -> None:
    """Who leads is known by the channel's secret, which the head alone keeps."""
    settings = load_settings(state_dir=tmp_path, ray_address="auto")
    with closing(open_catalog(settings.catalog_url)) as catalog:
        catalog.acquire_leadership(owner_of(b"the head's", "replica"))
        catalog.add_tick(TickRecord(at=timestamp(), plan_version=1, body={}))
        [finding] = services.database(settings)

    assert finding.ok
    assert finding.message.startswith("SQLite, tables at")
