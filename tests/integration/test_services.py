"""The same on PostgreSQL and a real redis-server."""

import shutil
from pathlib import Path

import pytest

from tests.integration.deployment import deployed, short_directory
from tests.integration.digits import Rows, check_five_slos, check_infeasible, check_killed_worker
from tests.services import fresh_database

pytestmark = pytest.mark.integration


def test_the_same_on_postgresql_and_redis(
    family: Path, held_out: tuple[Rows, list[int]], postgres_server_url: str, redis_server_url: str
) -> None:
    with short_directory() as home:
        shutil.copytree(family, home / "zoo" / "digits")
        with deployed(
            home,
            arguments=["--example", "digits"],
            database_url=fresh_database(postgres_server_url),
            redis_url=redis_server_url,
        ) as running:
            check_five_slos(running, held_out)
            check_infeasible(running)
            check_killed_worker(running)
            assert not (home / "catalog.db").exists()
            assert not [p for p in running.processes() if "valkey" in p.name()]
