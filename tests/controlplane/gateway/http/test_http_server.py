"""How often the HTTP server wakes while nobody asks, and how it ends."""

import asyncio
from pathlib import Path

import pytest
import uvicorn

from controlplane.gateway.gateway import Gateway
from controlplane.gateway.http.client_limits import ClientLimits
from tests.controlplane.fleet import eventually, fleet


async def test_it_looks_at_clients_as_seldom_as_is_said_and_ends_at_once(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    on_tick = uvicorn.Server.on_tick

    async def counted(server: uvicorn.Server, counter: int) -> bool:
        nonlocal looks
        looks += 1
        return await on_tick(server, counter)

    monkeypatch.setattr(uvicorn.Server, "on_tick", counted)
    async with fleet(tmp_path, port=port) as it:
        seldom = ClientLimits(sweep_s=3_600.0)
        gateway = Gateway(it.settings, it.catalog, it.store, it.secret, seldom)
        try:
            await gateway.start()
            await eventually(lambda: looks)
            await asyncio.sleep(0.5)
            assert looks == 1
            assert gateway.servers.http is not None
            assert gateway.servers.serving is not None
            gateway.servers.http.should_exit = True
            async with asyncio.timeout(60):
                await gateway.servers.serving
            assert looks == 2
        finally:
            await gateway.stop()
