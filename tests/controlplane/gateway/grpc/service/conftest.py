"""A gateway over gRPC with its stubs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.gateway.grpc.calls import Stubs, connected
from tests.controlplane.serving import Served, serving
from tests.ports import free_port


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url, grpc_port=free_port()) as running:
        yield running


@pytest.fixture
async def stubs(served: Served) -> AsyncIterator[Stubs]:
    async with connected(served.gateway.settings.grpc_port) as found:
        yield found
