"""The control API on a catalog of one task, without a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import Settings, load_settings
from tests.controlplane.builders import DictLive, digits_catalog
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog


@pytest.fixture
def catalog() -> MemoryCatalog:
    return digits_catalog()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(state_dir=tmp_path)


@pytest.fixture
def live() -> DictLive:
    return DictLive()


@pytest.fixture
async def api(
    settings: Settings, catalog: MemoryCatalog, live: DictLive
) -> AsyncIterator[httpx.AsyncClient]:
    store = FileArtifactStore(settings.artifacts_dir)
    app = build_api(ApiContext(catalog=catalog, store=store, settings=settings, live=live))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        yield client
