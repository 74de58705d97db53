"""The same on PostgreSQL and a real redis-server."""

import shutil
from contextlib import closing

import pytest

from controlplane.settings import load_settings
from tests.integration.conftest import Registered
from tests.integration.deployment import deployed, short_directory
from tests.integration.digits import Rows, check_five_slos, check_infeasible, check_killed_worker
from tests.services import fresh_database
from variants.catalog.sql import open_catalog
from variants.types import Registration

pytestmark = pytest.mark.integration


def copy_catalog(source: str, target: str) -> None:
    """Register there what is registered here, with the profiles as they are."""
    with closing(open_catalog(source)) as here, closing(open_catalog(target)) as there:
        found = here.snapshot()
        tasks = {task.name: task for task in found.tasks}
        for version in found.versions:
            variants = tuple(v for v in found.variants if v.model_version == version.label)
            names = {variant.name for variant in variants}
            there.register(
                Registration(
                    task=tasks[version.task],
                    version=version,
                    variants=variants,
                    profiles=tuple(p for p in found.profiles if p.variant in names),
                    device_kinds=found.device_kinds,
                )
            )


def test_the_same_on_postgresql_and_redis(
    registered: Registered,
    held_out: tuple[Rows, list[int]],
    postgres_server_url: str,
    redis_server_url: str,
) -> None:
    with short_directory() as home:
        shutil.copytree(registered.home / "artifacts", home / "artifacts")
        database_url = fresh_database(postgres_server_url)
        copy_catalog(load_settings(state_dir=registered.home).catalog_url, database_url)
        with deployed(home, database_url=database_url, redis_url=redis_server_url) as running:
            check_five_slos(running, held_out)
            check_infeasible(running)
            check_killed_worker(running)
            assert not (home / "catalog.db").exists()
            assert not [p for p in running.processes() if "valkey" in p.name()]
