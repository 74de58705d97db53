"""A control API over a catalog in memory, and how it is asked."""

from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import Settings
from tests.controlplane.builders import DictLive, digest
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.errors import NotFound
from variants.types import Digest


class OneFileStore:
    """Has the source of ``linear`` version 1 and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, source: Path) -> Digest:
        raise NotImplementedError

    def path(self, digest: Digest) -> Path:
        raise NotImplementedError

    def look(self, digest: Digest) -> Any:
        raise NotImplementedError

    def size_bytes(self, digest: Digest) -> int:
        if digest != LINEAR:
            raise NotFound("it is not in the store")
        return self._path.stat().st_size

    def place(self, digest: Digest) -> Path:
        raise NotImplementedError

    def sound(self, digest: Digest) -> Path:
        raise NotImplementedError

    def check(self, digest: Digest) -> None:
        raise NotImplementedError

    def put_back(self, digest: Digest) -> bool:
        raise NotImplementedError

    def delete(self, digest: Digest) -> None:
        raise NotImplementedError

    def digests(self) -> Any:
        raise NotImplementedError


LINEAR = digest("linear-v1")


def make_api(
    tmp_path: Path, settings: Settings, catalog: Catalog, live: DictLive | None = None
) -> FastAPI:
    source = tmp_path / "linear.onnx"
    source.write_bytes(b"x" * 123)
    store: ArtifactStore = OneFileStore(source)
    return build_api(
        ApiContext(catalog=catalog, store=store, settings=settings, live=live or DictLive())
    )


def client_of(api: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost")


async def get(api: httpx.AsyncClient, path: str) -> Any:
    reply = await api.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()
