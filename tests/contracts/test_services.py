"""The services that other tests rely on are real, and private."""

from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from tests.services import missing


def test_a_fresh_database_is_empty(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'public'"
        ).fetchone()
    assert tables == (0,)


def test_each_test_has_a_database_of_its_own(postgres_url: str, postgres_server_url: str) -> None:
    names = [urlsplit(url).path for url in (postgres_url, postgres_server_url)]
    hosts = [parse_qs(urlsplit(url).query) for url in (postgres_url, postgres_server_url)]
    assert names[0] != names[1]
    assert hosts[0] == hosts[1]


def test_redis_answers(redis_server_url: str) -> None:
    client = redis.Redis.from_url(redis_server_url)
    client.set("word", "hello")
    assert client.get("word") == b"hello"
    client.delete("word")
    client.close()


def test_a_missing_service_skips_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        missing("PostgreSQL")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        missing("PostgreSQL")
