"""What the doctor says of a PostgreSQL or Redis that answers and does not do what it is for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from redis import Redis
from sqlalchemy import make_url

from controlplane.settings import Settings, load_settings
from controlplane.startup.checks import services
from controlplane.startup.checks.finding import Finding
from tests.disks import fill, small_disk
from tests.services import drop_database, fresh_database, postgres_server, redis_server
from variants.catalog.sql import open_catalog


@contextmanager
def database(state_dir: Path) -> Iterator[tuple[psycopg.Connection[tuple[object, ...]], Settings]]:
    """A connection of the server's administrator, and the settings of a catalog there."""
    with postgres_server() as server:
        url = fresh_database(server)
        open_catalog(url).close()
        try:
            with psycopg.connect(server, autocommit=True) as connection:
                yield connection, load_settings(state_dir=state_dir, database_url=url)
        finally:
            drop_database(server, url)


def found_of(settings: Settings) -> Finding:
    [finding] = services.database(settings)
    return finding


def test_a_database_that_takes_no_writes_is_a_problem(tmp_path: Path) -> None:
    with database(tmp_path) as (administrator, settings):
        name = make_url(settings.database_url).database
        before = found_of(settings)
        administrator.execute(
            f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode()
        )
        after = found_of(settings)

    assert before.ok
    assert (after.ok, after.message, after.remedy) == (
        False,
        "PostgreSQL can be read and not written: it is a standby, or set to be read only",
        "make it writable, or name the one that is in MODELLESS_DATABASE_URL",
    )


def test_a_database_without_a_free_connection_need_not_be_started(tmp_path: Path) -> None:
    with database(tmp_path) as (administrator, settings):
        administrator.execute(b"CREATE ROLE visitor LOGIN PASSWORD 'v' CONNECTION LIMIT 0")
        try:
            url = make_url(settings.database_url).set(username="visitor", password="v")
            named = url.render_as_string(hide_password=False)
            finding = found_of(load_settings(state_dir=tmp_path, database_url=named))
        finally:
            administrator.execute(b"DROP ROLE visitor")

    assert "too many connections" in finding.message
    assert finding.remedy == "end some of its connections, or raise their limit"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('FATAL:  password authentication failed for user "m"', "correct user and password in"),
        ("FATAL:  remaining connection slots are reserved for", "end some of its connections"),
        ("FATAL:  sorry, too many clients already", "end some of its connections"),
        ("FATAL:  the database system is starting up", "wait until it has started"),
        ("Connection refused", "start it, or correct MODELLESS_DATABASE_URL"),
    ],
)
def test_the_remedy_is_for_what_postgresql_has_said(said: str, remedy: str) -> None:
    assert services.remedy_of("PostgreSQL", f"connection failed: {said}").startswith(remedy)


def test_a_redis_that_takes_nothing_is_a_problem(tmp_path: Path) -> None:
    with redis_server() as url, Redis.from_url(url) as server:
        settings = load_settings(state_dir=tmp_path, redis_url=url)
        server.config_set("maxmemory", 1)
        [full] = services.live_state(settings)
        server.config_set("maxmemory", 0)
        server.replicaof("127.0.0.1", 1)
        [replica] = services.live_state(settings)
        server.replicaof("NO", "ONE")
        [again] = services.live_state(settings)

    assert (full.ok, full.remedy) == (False, "raise its `maxmemory`, or remove other keys")
    assert "takes nothing more: " in full.message
    assert (replica.ok, replica.remedy) == (False, "name that one in MODELLESS_REDIS_URL")
    assert replica.message.endswith("answers, and is a replica of 127.0.0.1:1")
    assert again.ok


def test_a_database_without_space_left_is_a_problem(tmp_path: Path) -> None:
    """It could be read, and the doctor found nothing wrong."""
    with postgres_server() as server, small_disk(24 * 1024) as disk:
        with psycopg.connect(server, autocommit=True) as connection:
            [folder] = connection.execute(b"SHOW data_directory").fetchone() or ("",)
            owner = Path(str(folder)).stat()
            os.chown(disk, owner.st_uid, owner.st_gid)
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
            connection.execute(b"CREATE DATABASE small TABLESPACE small")
        url = make_url(server).set(database="small").render_as_string(hide_password=False)
        open_catalog(url).close()
        settings = load_settings(state_dir=tmp_path, database_url=url)
        before = found_of(settings)
        filler = fill(disk)
        full = found_of(settings)
        filler.unlink()
        drop_database(server, url)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(b"DROP TABLESPACE small")

    assert before.ok
    assert (full.ok, full.remedy) == (False, "free some space on its disk")
    assert full.message.startswith("PostgreSQL can be read and not written: could not extend file")
    assert full.message.endswith("No space left on device")


def test_a_redis_that_answers_slowly_is_warned_of(tmp_path: Path) -> None:
    with redis_server() as url, Redis.from_url(url) as server:
        settings = load_settings(state_dir=tmp_path, redis_url=url)
        server.client_pause(1_500)
        [slow] = services.live_state(settings)
        [again] = services.live_state(settings)

    assert (slow.ok, again.remedy) == (True, "")
    assert slow.remedy == "look at its load and at the way to it"
    assert "ms to answer: queries go on, gateways hear of new workers" in slow.message
