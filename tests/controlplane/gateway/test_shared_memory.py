"""How much memory a gateway lends to workers is as its setting says."""

from pathlib import Path

import pytest

from controlplane.gateway.gateway import Gateway
from controlplane.settings import load_settings
from tests.controlplane.builders import digits_catalog
from tests.services import SHARED_MEMORY
from tests.workers.builders import config, running, secret_of
from variants.artifacts.store import FileArtifactStore
from variants.types import WorkerId


@SHARED_MEMORY
@pytest.mark.parametrize(("changes", "mib"), [({}, 128), ({"shared_memory_mib": 5}, 5)])
async def test_all_connections_have_the_budget_of_the_setting(
    changes: dict[str, int], mib: int, tmp_path: Path
) -> None:
    worker = config(tmp_path)
    settings = load_settings(state_dir=tmp_path, redis_url="", **changes)
    store = FileArtifactStore(settings.artifacts_dir)
    pool = Gateway(settings, digits_catalog(), store, secret_of(worker)).known.workers._pool
    async with running(worker) as (_, other):
        for name in ("w1", "w2"):
            await pool.open(WorkerId(name), other.address)
        first, second = (one._lending for one in pool.connections.values())
        assert first is not None
        assert second is not None
        assert first._budget is second._budget
        assert first._budget.size == mib * 2**20
        pool.close()


async def test_none_is_lent_where_it_is_switched_off(tmp_path: Path) -> None:
    worker = config(tmp_path)
    settings = load_settings(state_dir=tmp_path, redis_url="", shared_memory_mib=0)
    store = FileArtifactStore(settings.artifacts_dir)
    pool = Gateway(settings, digits_catalog(), store, secret_of(worker)).known.workers._pool
    async with running(worker) as (_, other):
        await pool.open(WorkerId("w1"), other.address)
        assert [one._lending for one in pool.connections.values()] == [None]
        pool.close()
