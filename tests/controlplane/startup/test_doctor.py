"""What the doctor finds, one check at a time, on directories and ports of the test's own."""

import fcntl
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from controlplane import client_keys
from controlplane import settings as settings_module
from controlplane.cli import main as cli
from controlplane.controller.other_installations import owner_of
from controlplane.settings import Settings, load_settings
from controlplane.startup import doctor, settings_warnings
from controlplane.startup.checks import configuration, installation, machine, services, state
from controlplane.startup.checks.finding import Check, Finding, fine, problem, warning
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare, take_lock
from controlplane.timestamps import timestamp
from tests.contracts.lengths.test_catalog_texts import texts as text_task
from tests.controlplane.certificates import self_signed
from tests.controlplane.fleet import register_echo
from tests.ports import free_port
from tests.services import drop_database, fresh_database, postgres_server, redis_server
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.core_time import CoreMeter
from variants.types import TickRecord, VariantName
from workers.channel.secret import ensure_secret

pytestmark = pytest.mark.slow


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """Short enough for sockets, which a test's own folder need not be."""
    with TemporaryDirectory(prefix="doctor-") as folder:
        yield Path(folder) / "state"


@pytest.fixture
def settings(state_dir: Path) -> Settings:
    return load_settings(state_dir=state_dir, redis_url="", database_url="")


def found(check: Check, settings: Settings) -> list[Finding]:
    return list(check(settings))


@contextmanager
def up(settings: Settings) -> Iterator[None]:
    """This process has the state directory, as a `modelless up` with these settings has it."""
    prepare(settings)
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        yield


def test_this_python_will_do(settings: Settings) -> None:
    assert [one.ok for one in installation.python(settings)] == [True]


def test_packages_that_import_share_a_line_and_others_say_why_not(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokenwheel.py").write_text("raise OSError('libcore.so: no such file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    remedy = "install modelless again, in a virtual environment of its own"

    findings = list(installation.packages(settings, ("orjson", "brokenwheel", "nowhere")))

    assert [(one.ok, one.remedy) for one in findings] == [
        (True, ""), (False, remedy), (False, remedy),
    ]  # fmt: skip
    assert findings[0].message.startswith("orjson 3.")
    assert [one.message for one in findings[1:]] == [
        "brokenwheel cannot be imported: OSError: libcore.so: no such file",
        "nowhere cannot be imported: it is not installed",
    ]


# -- the state directory ------------------------------------------------------------------------


def test_a_state_directory_that_is_not_there_will_be_made(
    settings: Settings, state_dir: Path
) -> None:
    assert found(state.state_directory, settings) == [fine("state", f"{state_dir} will be made")]
    assert found(state.secrets, settings) == [fine("secrets", "will be made at the first start")]
    assert not state_dir.exists()


def test_a_used_one_is_fine(settings: Settings, state_dir: Path) -> None:
    prepare(settings)

    assert found(state.state_directory, settings) == [fine("state", str(state_dir))]
    assert found(state.secrets, settings) == [
        fine("secrets", "channel.secret and ray.token, for their owner only")
    ]


@pytest.mark.parametrize("letter", ["x", "ö"])
def test_a_path_too_long_for_sockets_says_by_how_much(tmp_path: Path, letter: str) -> None:
    """The system counts bytes, of which a letter with an accent has two."""
    at_most = 107 - len("/run/w-cpu-256-xxxxxxxx.sock")
    path = tmp_path / (letter + "x" * (at_most + 3 - len(str(tmp_path)) - 1 - len(letter.encode())))

    [finding] = state.state_directory(load_settings(state_dir=path))

    assert finding == problem(
        "state",
        f"the path of {path} is 3 bytes too long for Unix sockets",
        "set MODELLESS_STATE_DIR to a shorter one",
    )


def test_a_file_is_no_state_directory(settings: Settings, state_dir: Path) -> None:
    state_dir.write_text("")

    [finding] = state.state_directory(settings)

    assert (finding.ok, finding.message) == (False, f"{state_dir} is not a directory")


def test_a_secret_that_others_can_read_is_named(settings: Settings) -> None:
    prepare(settings)
    token = settings.state_dir / "ray.token"
    token.chmod(0o644)

    [finding] = state.secrets(settings)

    assert finding.message == f"{token} has mode 0644, so that others can read or write it"
    assert finding.remedy.startswith(f"chmod 600 {token}; ")


def test_a_directory_that_anybody_can_write_is_named(settings: Settings) -> None:
    prepare(settings)
    settings.state_dir.chmod(0o777)

    finding = state.secrets(settings).__next__()

    assert not finding.ok
    assert finding.message.endswith("has mode 0777, so that others can replace what is in it")


def test_a_directory_of_another_user_is_not_to_be_changed_by_this_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a worker's pod: the kubelet makes the volume, as root and with mode 0777."""
    prepare(settings)
    settings.state_dir.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: settings.state_dir.stat().st_uid + 10_001)

    finding = state.secrets(settings).__next__()

    assert (finding.ok, finding.remedy != "") == (True, True)
    assert finding.message == (
        f"{settings.state_dir} has mode 0777, so that others can replace what is in it, and belongs"
        " to another user, who alone can change that"
    )


def test_settings_that_others_can_read_are_warned_of(settings: Settings) -> None:
    prepare(settings)
    file = settings.state_dir / "settings.env"
    file.touch()
    file.chmod(0o644)
    assert [one.remedy for one in state.secrets(settings)] == [""]

    settings.state_dir.chmod(0o755)

    assert [one.remedy for one in state.secrets(settings)] == [f"chmod 600 {file}", ""]


def test_a_file_of_keys_that_is_named_and_not_there_is_a_warning(state_dir: Path) -> None:
    named = load_settings(state_dir=state_dir, client_keys="/nowhere/keys")

    [finding] = found(configuration.keys, named)

    assert finding.ok
    assert finding.message == "/nowhere/keys, which MODELLESS_CLIENT_KEYS names, is not there"
    assert "modelless keys add" in finding.remedy


def test_keys_of_clients_with_which_no_gateway_starts_are_a_problem(settings: Settings) -> None:
    prepare(settings)
    assert found(configuration.keys, settings) == [fine("client keys", "no keys of clients")]
    client_keys.add(settings.client_keys_path, "shop")
    assert found(configuration.keys, settings) == [fine("client keys", "1 key of clients")]

    settings.client_keys_path.write_text("shop\n")

    [finding] = found(configuration.keys, settings)
    assert not finding.ok
    assert finding.message == (
        f"{settings.client_keys_path}, line 1: a line is a name, a key or its digest, and perhaps"
        " weight=N"
    )


def test_a_process_that_a_killed_run_left_is_named(settings: Settings) -> None:
    prepare(settings)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as left:
        made = psutil.Process(left.pid).create_time()
        write_state(settings, 1, {(left.pid, made), (os.getpid(), 1.0)})
        before = found(state.leftovers, settings)
        left.kill()
        left.wait()

    assert before == [
        problem(
            "leftovers",
            f"a killed run has left 1 processes: {left.pid}",
            "`modelless down` ends them",
        )
    ]
    assert found(state.leftovers, settings) == [fine("leftovers", "none")]


# -- what it talks to ---------------------------------------------------------------------------


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


# -- what it keeps ------------------------------------------------------------------------------


def test_artifacts_that_are_what_was_registered_share_a_line(settings: Settings) -> None:
    assert found(services.artifacts, settings) == []
    with closing(open_catalog(settings.catalog_url)) as catalog:
        assert found(services.artifacts, settings) == [fine("artifacts", "none is registered")]
        register_echo(catalog, FileArtifactStore(settings.artifacts_dir), settings.state_dir, "a")
    said: list[str] = []
    assert list(services.artifacts(settings, said.append)) == [
        fine("artifacts", "all 1 are what was registered (0 MiB)")
    ]
    assert said == ["read 0 of 0 MiB"]


def test_a_damaged_artifact_is_named_with_what_to_do(settings: Settings) -> None:
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        register_echo(catalog, store, settings.state_dir, "a")
        register_echo(catalog, store, settings.state_dir, "b")
        known = {v.name: v.artifact for v in catalog.snapshot().variants}
    place = store.place(known[VariantName("a-v1-echo-fp32")])
    place.chmod(0o644)
    place.write_bytes(b"A")
    store.delete(known[VariantName("b-v1-echo-fp32")])
    before = sorted(settings.state_dir.rglob("*"))

    findings = found(services.artifacts, settings)

    again = "register the same file again, with the same rows"
    assert [(one.ok, one.message, one.remedy) for one in findings] == [
        (
            False,
            f"digits/a-v1-echo-fp32, source of digits/a-v1: its artifact {place.name[:12]} is "
            "damaged: the 1 bytes in the store are not those that were registered",
            again,
        ),
        (
            False,
            "digits/b-v1-echo-fp32, source of digits/b-v1: its artifact "
            f"{known[VariantName('b-v1-echo-fp32')][:12]} is missing",
            again,
        ),
    ]
    assert sorted(settings.state_dir.rglob("*")) == before


# -- who gets in --------------------------------------------------------------------------------


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


# -- the machine --------------------------------------------------------------------------------


def test_memory_is_compared_with_what_workers_may_fill(state_dir: Path) -> None:
    little = load_settings(state_dir=state_dir, worker_memory_mib=1.0)
    much = load_settings(state_dir=state_dir, worker_memory_mib=1e9)

    assert [[one.ok for one in machine.memory(each)] for each in (little, much)] == [
        [True],
        [False],
    ]


# -- the command --------------------------------------------------------------------------------


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0), capsys.readouterr().out


@pytest.fixture
def one_problem(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that is taken, on a machine that is otherwise fine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        for name in [name for name in os.environ if name.startswith("MODELLESS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("MODELLESS_STATE_DIR", str(state_dir))
        monkeypatch.setenv("MODELLESS_PORT", str(number))
        monkeypatch.setenv("MODELLESS_GRPC_PORT", "0")
        monkeypatch.setenv("MODELLESS_WORKER_MEMORY_MIB", "1")
        yield number


def test_a_problem_ends_with_1_and_stands_on_one_line_with_its_remedy(
    one_problem: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(["doctor"], capsys)

    lines = out.splitlines()
    assert (code, len(lines)) == (1, len(doctor.CHECKS))
    others = [line for line in lines if " port " not in line and " core time " not in line]
    assert {line.split()[0] for line in others} == {"ok"}  # others may use the cores just now
    [line] = [line for line in lines if " port " in line]
    assert line.split(maxsplit=2)[2] == (
        f"127.0.0.1:{one_problem} cannot be used: Address already in use; "
        "choose another port with --port or MODELLESS_PORT"
    )


def two_checks(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the doctor look at settings and cores alone, of which nothing is set."""
    monkeypatch.setattr(doctor, "CHECKS", (configuration.names, machine.cores))
    for name in [name for name in os.environ if name.startswith("MODELLESS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(state_dir))


def test_a_warning_stands_on_one_line_and_ends_with_0(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_checks(state_dir, monkeypatch)
    monkeypatch.setenv("MODELLESS_WORKRES", "2")
    monkeypatch.setenv("MODELLESS_CORES", "100000")

    code, out = run(["doctor"], capsys)

    lines = out.splitlines()
    assert (code, [line.split()[:2] for line in lines]) == (
        0, [["warning", "settings"], ["warning", "cores"]],
    )  # fmt: skip
    assert lines[0].endswith("is no setting; did you mean MODELLESS_WORKERS?")
    assert lines[1].split(maxsplit=2)[2].startswith("MODELLESS_CORES=100000, and this machine has ")


def test_on_a_terminal_the_last_line_names_what_matters(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_checks(state_dir, monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert run(["doctor"], capsys)[1].splitlines()[-1] == "Everything can run here."
    monkeypatch.setenv("MODELLESS_WORKRES", "2")
    assert run(["doctor"], capsys)[1].splitlines()[-1] == "1 warning (settings)"


@pytest.mark.parametrize(
    ("count", "given", "said"),
    [
        (4, {}, "1 worker of 4 cores"),
        (16, {}, "1 worker of 16 cores computes one batch at a time, on all of them"),
        (16, {"workers": 4}, "4 workers of 4 cores"),
        (16, {"cores": 16}, "1 worker of 16 cores"),
        (16, {"slices": "1xcpu-16"}, "1 worker of 16 cores"),
    ],
)
def test_one_worker_of_many_cores_is_worth_a_word(
    monkeypatch: pytest.MonkeyPatch, count: int, given: dict[str, Any], said: str
) -> None:
    for module in (machine, settings_module, settings_warnings):
        monkeypatch.setattr(module, "usable_cores", lambda: count)
    [found] = machine.cores(load_settings(**given))
    assert (found.ok, found.message) == (True, said)
    if found.remedy:
        assert "MODELLESS_WORKERS=4 has some of 4 cores" in found.remedy
        proposed = load_settings(slices="1xcpu-16|4xcpu-4")
        assert "'1xcpu-16|4xcpu-4'" in found.remedy
        assert len(proposed.layouts) == 2


def test_the_report_in_json_has_the_same(
    one_problem: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    light = tuple(check for check in doctor.CHECKS if check is not installation.packages)
    monkeypatch.setattr(doctor, "CHECKS", light)
    code, out = run(["doctor", "-o", "json"], capsys)

    said = json.loads(out)
    assert (code, len(said)) == (1, len(light))
    assert [one["name"] for one in said if not one["ok"]] == ["port"]


def test_texts_need_their_library_where_a_task_takes_any(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = [fine("texts", "no task takes any")]
    assert list(services.texts(settings)) == nothing  # there is no catalog, and none is made
    assert not Path(settings.catalog_url.removeprefix("sqlite:///")).exists()
    settings.state_dir.mkdir(exist_ok=True)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        assert list(services.texts(settings)) == nothing
        catalog.register(text_task())
    [found] = services.texts(settings)
    assert (found.ok, found.message) == (True, f"read by tokenizers {version('tokenizers')}")
    monkeypatch.setattr(services, "import_fault", lambda name: "it is not installed")
    [found] = services.texts(settings)
    assert found == problem(
        "texts",
        "1 task takes texts, and the library tokenizers cannot be imported: it is not installed",
        "pip install 'modelless[text]'",
    )


def test_the_doctor_imports_nothing_heavy(state_dir: Path) -> None:
    script = (
        "import sys\n"
        "from controlplane.startup.doctor import examine\n"
        "from controlplane.settings import load_settings\n"
        "list(examine(load_settings()))\n"
        "print(sorted({'ray', 'torch', 'onnx', 'onnxruntime', 'sklearn', 'ortools'} "
        "& set(sys.modules)))\n"
    )
    environment = os.environ | {"MODELLESS_STATE_DIR": str(state_dir)}

    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )

    assert ran.stdout == "[]\n"
    assert not state_dir.exists()


@contextmanager
def replica(niceness: int) -> Iterator[int]:
    """A process with the title that Ray gives to a replica of ours."""
    with subprocess.Popen(
        ["ray::ServeReplica:modelless-gateway:gateway", "60"],
        executable="/bin/sleep",
    ) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        try:
            title = Path(f"/proc/{process.pid}/cmdline")
            while not title.read_bytes().startswith(b"ray::"):  # not yet, on a busy machine
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()


def test_replicas_that_yield_to_other_programs_are_named(settings: Settings) -> None:
    with replica(15) as pid:
        [finding] = machine.niceness(settings)

    assert not finding.ok
    assert f"{pid} (niceness 15)" in finding.message
    assert "RAY_worker_niceness=0" in finding.remedy


def test_replicas_of_another_installation_do_not_count(settings: Settings) -> None:
    settings.run_dir.mkdir(parents=True)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock, replica(15), subprocess.Popen(["sleep", "60"]) as other:
        write_state(settings, other.pid, set(), ray="127.0.0.1:1")
        [finding] = machine.niceness(settings)
        other.kill()
    assert (finding.ok, finding.message) == (True, "no gateway or worker runs on this machine")


def test_replicas_below_what_runs_count_whoever_has_started_them(settings: Settings) -> None:
    """Those that are forked from a template have no raylet above them."""
    settings.run_dir.mkdir(parents=True)
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock, replica(0):
        write_state(settings, os.getpid(), set(), ray="127.0.0.1:1")
        [finding] = machine.niceness(settings)
    assert finding.message == "0 in each of 1 gateways and workers on this machine"


def test_only_what_answers_queries_of_ours_is_looked_at() -> None:
    assert machine.answers_queries(["ray::ServeReplica:modelless-worker-cpu-2:worker"])
    assert machine.answers_queries(["ray::ServeReplica:modelless-gateway:gateway"])
    assert not machine.answers_queries(["ray::ServeReplica:modelless-controller:controller"])
    assert not machine.answers_queries(["ray::ServeReplica:theirs:worker"])
    assert not machine.answers_queries([])


def test_cores_that_others_take_are_told(settings: Settings, tmp_path: Path) -> None:
    def taken(of_ten_s: float) -> list[Finding]:
        now_s = [0.0]

        def passes(_: float) -> None:
            now_s[0] += 10.0
            counted(10_000_000 + round(of_ten_s * 1e6), 2_000)

        def counted(waited_us: int, ticks: int) -> None:
            (tmp_path / "pressure").mkdir(exist_ok=True)
            (tmp_path / "pressure" / "cpu").write_text(f"some avg10=0.00 total={waited_us}\n")
            (tmp_path / "stat").write_text(f"cpu0 {ticks} 0 0 0 0 0 0 0 0 0\n")

        counted(10_000_000, 1_000)
        return list(
            machine.taken_cores(
                settings,
                lambda used_s: CoreMeter(
                    proc=tmp_path, own=tmp_path / "none", cores=(0,), host="h1", used_s=used_s,
                    clock_s=lambda: now_s[0],
                ),
                passes,
            )
        )  # fmt: skip

    assert taken(of_ten_s=4.0) == [fine("core time", "something waited for a core in 40 % of 1 s")]
    [found] = taken(of_ten_s=8.0)

    assert (found.name, found.ok) == ("core time", True)
    assert found.message == (
        "80 % of the time something waited for one, gateways and workers use 0.0 of its 1 core, "
        "other programs 1.0"
    )
    assert found.remedy == "stop some of these, or run modelless on another machine"


def test_a_secret_that_what_runs_does_not_know_is_told(settings: Settings) -> None:
    """The doctor found the new password right, and said nothing of what runs with the old one."""
    settings.run_dir.mkdir(parents=True)
    ensure_secret(settings.secret_path)
    old = settings.model_copy(update={"database_url": "postgresql://m:old@db/catalog"})
    new = settings.model_copy(update={"database_url": "postgresql://m:new@db/catalog"})
    lock = take_lock(settings.run_dir / "up.lock")
    assert lock is not None
    with lock:
        write_state(old, os.getpid(), set())
        same, other = list(state.secrets(old)), list(state.secrets(new))

    assert {one.remedy for one in same} == {""}
    [warned] = [one for one in other if one.remedy]
    assert warned == warning(
        "secrets",
        "MODELLESS_DATABASE_URL is not what runs here was started with, which goes on by the old "
        "one",
        "`modelless down` and `modelless up` take it in",
    )
    assert "old@" not in str(other)
