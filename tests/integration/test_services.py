"""The same on PostgreSQL and a real redis-server."""

import shutil
from contextlib import closing

import pytest

from controlplane.settings import load_settings
from tests.integration.conftest import Registered
from tests.integration.deployment import deployed, short_directory
from tests.integration.digits import Rows, check_five_slos, check_infeasible, check_killed_worker
from tests.services import fresh_database
from tests.variants.catalog_copies import copy_registrations
from variants.catalog.sql import open_catalog

pytestmark = pytest.mark.integration


def test_the_same_on_postgresql_and_redis(
    registered: Registered,
    held_out: tuple[Rows, list[int]],
    postgres_server_url: str,
    redis_server_url: str,
) -> None:
    with short_directory() as home:
        shutil.copytree(registered.home / "artifacts", home / "artifacts")
        database_url = fresh_database(postgres_server_url)
        settings = load_settings(state_dir=registered.home)
        with (
            closing(open_catalog(settings.catalog_url)) as here,
            closing(open_catalog(database_url)) as there,
        ):
            copy_registrations(here.snapshot(), there)
        with deployed(home, database_url=database_url, redis_url=redis_server_url) as running:
            check_five_slos(running, held_out)
            check_infeasible(running)
            check_killed_worker(running)
            assert not (home / "catalog.db").exists()
            assert not [p for p in running.processes() if "valkey" in p.name()]
