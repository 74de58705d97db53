"""One deployment for all modules of this folder: one worker, and an empty catalog at first.

Each module registers what it asks, and removes it again.
"""

from collections.abc import Iterator

import grpc
import pytest

from tests.integration.deployment import Deployment, deployed, short_directory


@pytest.fixture(scope="package")
def running() -> Iterator[Deployment]:
    """One worker with all cores."""
    with short_directory() as home, deployed(home / "s", gateways=1) as running:
        yield running


@pytest.fixture
def channel(running: Deployment) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as opened:
        yield opened
