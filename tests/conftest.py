"""Fixtures that several folders of tests share."""

from collections.abc import Iterator

import pytest

from tests.services import drop_database, fresh_database, postgres_server, redis_server


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """A PostgreSQL server, started once."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server_url: str) -> Iterator[str]:
    """A database of its own for each test."""
    url = fresh_database(postgres_server_url)
    yield url
    drop_database(postgres_server_url, url)


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    """A ``redis-server``, started once; a test that needs it empty has to flush it."""
    with redis_server() as url:
        yield url
