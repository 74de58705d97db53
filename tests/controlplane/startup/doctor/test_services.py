"""What the doctor says of ports, databases and other services."""

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.controller.other_installations import owner_of
from controlplane.settings import Settings, load_settings
from controlplane.startup import doctor
from controlplane.startup.checks import configuration, services
from controlplane.startup.checks.finding import Finding, fine, problem
from controlplane.startup.state_directory import prepare
from controlplane.startup.valkey import SOCKET
from controlplane.timestamps import timestamp
from tests.controlplane.certificates import self_signed
from tests.controlplane.startup.doctor.looked_at import found, up
from tests.ports import free_port
from tests.services import drop_database, fresh_database, postgres_server, redis_server
from variants.catalog.sql import open_catalog
from variants.types import TickRecord
from workers.channel.secret import ensure_secret

pytestmark = pytest.mark.slow


def test_a_taken_port_is_a_problem_and_a_free_one_is_not(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        settings = load_settings(state_dir=state_dir, port=number, grpc_port=0)
        before = found(services.port, settings)

    assert before == [
        problem(
            "port",
            f"127.0.0.1:{number} cannot be used: Address already in use",
            "choose another port with --port or MODELLESS_PORT",
        )
    ]
    assert found(services.port, settings) == [fine("port", f"127.0.0.1:{number} is free")]


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_no_matter_of_ports(host: str, state_dir: Path) -> None:
    settings = load_settings(
        state_dir=state_dir, host=host, grpc_port=0, api_token="t" * 16, behind_tls_proxy=True
    )
    [finding] = found(services.port, settings)

    assert (finding.ok, finding.remedy) == (
        False,
        "set MODELLESS_HOST to an address of this machine",
    )


def test_the_port_of_grpc_is_looked_at_too(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        settings = load_settings(state_dir=state_dir, port=free_port(), grpc_port=number)
        [_, finding] = found(services.port, settings)

    assert finding == problem(
        "gRPC port",
        f"127.0.0.1:{number} cannot be used: Address already in use",
        "choose another port with MODELLESS_GRPC_PORT, or 0 for no gRPC",
    )


def test_ports_are_those_that_the_running_one_was_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (services.port,))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        elsewhere = {"port": taken.getsockname()[1], "grpc_port": taken.getsockname()[1]}
        told = settings.model_copy(update={"port": free_port(), "grpc_port": free_port()})
        with up(told):
            starting = list(doctor.examine(settings.model_copy(update=elsewhere)))
            (settings.run_dir / "ready").write_text(str(os.getpid()))
            here = list(doctor.examine(settings.model_copy(update=elsewhere)))
        after = list(doctor.examine(settings.model_copy(update=elsewhere)))

    kept = f"is kept for the starting process {os.getpid()}"
    assert all(kept in finding.message for finding in starting)
    mine = f"is served by process {os.getpid()}"
    assert here == [
        fine("port", f"127.0.0.1:{told.port} {mine}"),
        fine("gRPC port", f"127.0.0.1:{told.grpc_port} {mine}"),
    ]
    assert [one.ok for one in after] == [False, False]


def test_ports_are_those_of_the_settings_in_the_state_directory(state_dir: Path) -> None:
    number = free_port()
    state_dir.mkdir()
    (state_dir / "settings.env").write_text(f"MODELLESS_PORT={number}\nMODELLESS_GRPC_PORT=0\n")

    assert found(services.port, load_settings(state_dir=state_dir)) == [
        fine("port", f"127.0.0.1:{number} is free")
    ]


def test_a_database_that_another_program_keeps_is_a_problem(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CONNECT_S", 0.2)
    open_catalog(settings.catalog_url).close()
    file = settings.state_dir / "catalog.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        [finding] = found(services.database, settings)
        other.execute("ROLLBACK")
    locked = "SQLite can be read and not written: database is locked"
    remedy = f"end what keeps it for itself, which `fuser -v {file}` names"
    assert finding == problem("database", locked, remedy)
    [finding] = found(services.database, settings)
    assert finding.ok


def test_an_embedded_valkey_that_hangs_is_a_problem(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CONNECT_S", 0.2)
    settings = load_settings(state_dir=short_folder)
    settings.run_dir.mkdir()
    path = settings.run_dir / SOCKET
    with socket.socket(socket.AF_UNIX) as hangs:
        hangs.bind(str(path))
        hangs.listen()
        remedy = f"end its process, which `fuser {path}` names: `modelless up` starts another one"
        [finding] = services.live_state(settings)
        silent = "the embedded Valkey gives no reply within 0.2 s"
        assert finding == problem("live state", silent, remedy)
    [finding] = services.live_state(settings)  # nobody listens there any more
    assert finding.ok


def test_the_embedded_valkey_is_tried(settings: Settings) -> None:
    [finding] = services.live_state(settings)

    assert finding.ok
    assert finding.message.startswith("embedded Valkey ")


def test_a_ray_cluster_that_does_not_answer_is_a_problem(state_dir: Path) -> None:
    auto = load_settings(state_dir=state_dir, ray_address="auto")
    assert found(services.ray, auto) == [fine("ray", "auto: it is found when it is joined")]
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
    nowhere = load_settings(state_dir=state_dir, ray_address=address)

    [finding] = found(services.ray, nowhere)

    assert (finding.ok, finding.message) == (False, f"nothing listens at {address}")
    assert "MODELLESS_RAY_ADDRESS" in finding.remedy


def test_a_redis_that_does_not_answer_is_named_without_its_password(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        number = unused.getsockname()[1]
    url = f"redis://me:hunter2@127.0.0.1:{number}/3"

    [finding] = services.live_state(load_settings(state_dir=state_dir, redis_url=url))

    assert not finding.ok
    assert finding.message.startswith(f"redis://127.0.0.1:{number}/3 does not answer: ")
    assert "hunter2" not in finding.message


def test_a_database_that_does_not_answer_is_named_without_its_password(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        number = unused.getsockname()[1]
    url = f"postgresql://me:hunter2@127.0.0.1:{number}/models"

    [finding] = services.database(load_settings(state_dir=state_dir, database_url=url))

    assert (finding.ok, finding.remedy) == (
        False,
        "start it, or correct MODELLESS_DATABASE_URL",
    )
    assert "hunter2" not in finding.message


def test_a_database_is_read_and_never_made(settings: Settings, state_dir: Path) -> None:
    state_dir.mkdir()

    assert found(services.database, settings) == [
        fine("database", "SQLite, without tables; `modelless up` makes them")
    ]
    assert list(state_dir.iterdir()) == []


def test_the_version_of_the_tables_is_told(settings: Settings, state_dir: Path) -> None:
    open_catalog(settings.catalog_url).close()
    [now] = services.database(settings)
    with sqlite3.connect(state_dir / "catalog.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    [newer] = services.database(settings)

    assert now.ok
    assert now.message.startswith("SQLite, tables at 0")
    assert not newer.ok
    assert newer.message.startswith("SQLite, tables at 9999, made by a newer modelless; ")


def test_a_catalog_by_which_another_installation_plans_is_a_problem(settings: Settings) -> None:
    prepare(settings)
    own = ensure_secret(settings.secret_path)
    heard = TickRecord(at=timestamp(), plan_version=1, body={})
    with closing(open_catalog(settings.catalog_url)) as catalog:
        catalog.acquire_leadership(owner_of(own, "replica"))
        catalog.add_tick(heard)
        [alone] = services.database(settings)
        catalog.acquire_leadership(owner_of(b"another", "replica"))
        [shared] = services.database(settings)

    assert (alone.ok, alone.message.startswith("SQLite, tables at")) == (True, True)
    assert (shared.ok, shared.remedy.startswith("stop it, or set MODELLESS_DATABASE_URL")) == (
        False,
        True,
    )
    assert "plans by the same catalog" in shared.message


def test_a_file_that_is_no_database_is_a_problem(settings: Settings, state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "catalog.db").write_bytes(b"not a database, but long enough to be taken for one")

    [finding] = services.database(settings)

    assert not finding.ok


def test_a_real_redis_answers(state_dir: Path) -> None:
    with redis_server() as url:
        [finding] = services.live_state(load_settings(state_dir=state_dir, redis_url=url))

    assert (finding.ok, finding.message.endswith(" answers")) == (True, True)


def test_a_real_postgresql_has_tables_once_they_are_made(state_dir: Path) -> None:
    with postgres_server() as server:
        url = fresh_database(server)
        settings = load_settings(state_dir=state_dir, database_url=url)
        empty = found(services.database, settings)
        open_catalog(url).close()
        full = found(services.database, settings)
        drop_database(server, url)

    assert empty == [fine("database", "PostgreSQL, without tables; `modelless up` makes them")]
    assert [(one.ok, one.message.startswith("PostgreSQL, tables at 0")) for one in full] == [
        (True, True)
    ]


def test_who_reaches_the_gateway_is_told(state_dir: Path, tmp_path: Path) -> None:
    pair, old = self_signed(tmp_path / "new"), self_signed(tmp_path / "old", days=-1)

    def told(**given: object) -> Finding:
        settings = load_settings(state_dir=state_dir, **given)
        [finding] = configuration.access(settings)
        return finding

    exposed = {"host": "10.0.0.7", "api_token": "sixteen-letters!"}
    assert told() == fine("access", "this machine only, without a token")
    assert told(**exposed, behind_tls_proxy=True) == fine(
        "access", "other machines, with a token; a proxy ends TLS"
    )
    encrypted = told(**exposed, tls_cert=pair.certificate, tls_key=pair.key)
    assert encrypted.ok
    assert encrypted.message.startswith("other machines, with a token; TLS, with a certificate un")
    late = self_signed(tmp_path / "late", days=3)
    ends_soon = told(**exposed, tls_cert=late.certificate, tls_key=late.key)
    assert ends_soon.remedy.startswith("renew it in its place")
    ended = told(**exposed, tls_cert=old.certificate, tls_key=old.key)
    assert not ended.ok
    assert ended.message.endswith(" has expired")
