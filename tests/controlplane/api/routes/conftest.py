"""A control API over a catalog in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controlplane.settings import Settings, load_settings
from tests.controlplane.api.routes.made_api import client_of, make_api
from tests.controlplane.builders import DictLive, digits_catalog, worker
from variants.catalog.memory import MemoryCatalog


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(state_dir=tmp_path / "state")


@pytest.fixture
def catalog() -> MemoryCatalog:
    return digits_catalog()


@pytest.fixture
def live() -> DictLive:
    return DictLive(worker("cpu-4-b", "mlp-v1-onnx-int8"), worker("cpu-4-a", "linear-v1-onnx-fp32"))


@pytest.fixture
async def api(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog, live: DictLive
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_api(tmp_path, settings, catalog, live)) as client:
        yield client
