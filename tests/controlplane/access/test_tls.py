"""TLS at the gateway: a certificate made here, clients that trust it and clients that do not."""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from controlplane.access.tls import FollowedCertificate, check, server_context, trusting
from controlplane.cli.gateway_client import Access
from controlplane.cli.gateway_client import Client as CommandClient
from controlplane.cli.outcome import NotRunning
from controlplane.client.asking import Client as PythonClient
from controlplane.client.exchange import connection_options
from tests.controlplane.certificates import Pair, self_signed
from tests.controlplane.serving import FAST, LATE, Client, Served, post, query, serving, until
from tests.ports import free_port
from variants.errors import InvalidInput, ModellessError

TOKEN = "sixteen-letters!"
AUTHORIZED = [("Authorization", f"Bearer {TOKEN}")]


@pytest.fixture
async def served(live_url: str) -> AsyncIterator[Served]:
    """A gateway on all addresses, with TLS and a token, called models.example."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        folder = Path(name)
        pair = self_signed(folder)
        async with serving(
            folder, live_url, host="0.0.0.0", api_token=TOKEN, allowed_hosts="models.example",
            tls_cert=pair.certificate, tls_key=pair.key, max_body_mib=0.25,
        ) as running:  # fmt: skip
            await running.worker("w1", FAST)
            yield running


async def encrypted(served: Served) -> Client:
    context = trusting(served.gateway.settings.tls_cert)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", served.port, ssl=context, server_hostname="models.example"
    )
    served.stack.callback(writer.close)
    return Client(reader, writer)


async def test_queries_travel_encrypted(served: Served) -> None:
    client = await encrypted(served)
    for number in range(3):
        answer = await client.ask(query(number), host="models.example", headers=AUTHORIZED)
        assert answer.json["outputs"][0][0] == number


@pytest.mark.parametrize("says", ["close_notify", "FIN"])
async def test_who_sends_nothing_more_over_tls_is_taken_for_gone(says: str, live_url: str) -> None:
    """Event loops end a connection with TLS at once (decision 26). No client of HTTP does it before
    its answer; who writes to a socket by hand may."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        pair = self_signed(Path(name))
        async with serving(
            Path(name), live_url, tls_cert=pair.certificate, tls_key=pair.key
        ) as running:
            await running.worker("w1", LATE)
            context = trusting(pair.certificate)
            came = await asyncio.to_thread(half_closed, running.port, context, says)
            assert came == b""
            await until(lambda: not running.in_flight)
            counted = running.gateway.path.counters.task(running.task.name)
            assert counted.errors == {"CLIENT_GONE": 1}


def half_closed(port: int, context: ssl.SSLContext, says: str) -> bytes:
    """What comes to a client that asks and says that it sends nothing more."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        encrypted = context.wrap_socket(
            plain, server_hostname="models.example", suppress_ragged_eofs=True
        )
        with encrypted:
            encrypted.settimeout(60.0)
            encrypted.sendall(post(query(1, variant=LATE)))
            if says == "FIN":
                socket.socket.shutdown(encrypted, socket.SHUT_WR)
                return encrypted.recv(1_000)
            with suppress(ssl.SSLError):
                encrypted.unwrap()  # and waits for that of the gateway
            return b""


async def presented(port: int) -> bytes:
    """The certificate that a client is shown that names no host."""
    shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return ssl.PEM_cert_to_DER_cert(shown)


def der(certificate: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(certificate).read_text())


async def test_a_renewed_certificate_is_shown_to_who_connects_from_then_on(live_url: str) -> None:
    """By both protocols; who is connected stays so, and nothing is started anew."""
    grpc_port = free_port()
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        folder = Path(name)
        pair = self_signed(folder)
        before = der(pair.certificate)
        async with serving(
            folder, live_url, grpc_port=grpc_port, tls_cert=pair.certificate, tls_key=pair.key
        ) as served:
            await served.worker("w1", FAST)
            kept = await encrypted(served)
            ports = (served.port, grpc_port)
            assert [await presented(port) for port in ports] == [before, before]
            self_signed(folder)
            renewed = der(pair.certificate)
            for port in ports:
                while await presented(port) == before:
                    pass
            assert [await presented(port) for port in ports] == [renewed, renewed]
            for client in (kept, await encrypted(served)):
                assert (await client.ask(query(1), host="localhost")).status == 200


def test_files_that_cannot_be_used_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = self_signed(tmp_path)
    followed = FollowedCertificate(*pair)
    old, context = followed.pair, followed.context
    other = self_signed(tmp_path / "other")
    Path(pair.certificate).write_bytes(Path(other.certificate).read_bytes())  # not yet its key
    stays = "the certificate stays as it was: settings MODELLESS_TLS_CERT"
    for times in (0, 1, 1):  # at the first look they may be being written
        followed.look()
        assert followed.pair is old
        assert caplog.text.count(stays) == times
    Path(pair.key).unlink()
    followed.look()
    assert followed.pair is old
    Path(pair.key).write_bytes(Path(other.key).read_bytes())
    followed.look()
    assert followed.pair.key == Path(other.key).read_bytes()
    assert followed.context is context


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("models.example", 200), ("models.example:8000", 200), ("localhost", 200),
        ("127.0.0.1", 200), ("evil.example", 403), ("0.0.0.0", 403),
    ],
)  # fmt: skip
async def test_the_host_is_checked_on_all_addresses(served: Served, host: str, status: int) -> None:
    client = await encrypted(served)
    assert (await client.ask(query(1), host=host, headers=AUTHORIZED)).status == status


async def test_the_token_is_asked_for(served: Served) -> None:
    client = await encrypted(served)
    assert (await client.ask(query(1))).status == 401


async def test_a_refused_body_gets_its_answer(served: Served) -> None:
    client = await encrypted(served)
    client.send(post(bytes(8 * 2**20), headers=AUTHORIZED))
    assert (await client.answer()).error[:2] == (413, "PAYLOAD_TOO_LARGE")


async def test_plain_text_is_no_query(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1), headers=AUTHORIZED))
    assert not (await client.ended()).startswith(b"HTTP/")


async def test_what_runs_on_the_state_directory_is_trusted_by_its_certificate(
    served: Served, tmp_path: Path
) -> None:
    """The command line calls it by a loopback address, which the certificate does not bear."""
    url, certificate = f"https://127.0.0.1:{served.port}", served.gateway.settings.tls_cert
    assert served.gateway.settings.own_url == url

    def live(file: str) -> bool:
        with CommandClient(url, token=TOKEN, certificate=file) as client:
            return bool(client.get("/v2/health/live")["live"])

    assert await asyncio.to_thread(live, certificate)
    for another in ("", self_signed(tmp_path).certificate):
        with pytest.raises(NotRunning, match=r"is not trusted: .*; SSL_CERT_FILE names"):
            await asyncio.to_thread(live, another)


async def test_the_command_line_reaches_its_own_gateway_whose_certificate_has_ended(
    live_url: str,
) -> None:
    """So that `modelless status` says so."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        pair = self_signed(Path(name), "localhost", days=-1)
        async with serving(
            Path(name), live_url, tls_cert=pair.certificate, tls_key=pair.key
        ) as served:
            url = served.gateway.settings.own_url

            def told(certificate: str) -> str:
                with CommandClient(url, certificate=certificate) as client:
                    return str(client.get("/v1/plan")["certificate"]["level"])

            assert await asyncio.to_thread(told, pair.certificate) == "certificate_ended"
            with pytest.raises(NotRunning, match="is not trusted"):
                await asyncio.to_thread(told, "")


async def test_the_python_client_takes_a_certificate(served: Served) -> None:
    certificate = served.gateway.settings.tls_cert
    url = f"https://localhost:{served.port}"  # not a name of the certificate

    def ask() -> None:
        with PythonClient(url, token=TOKEN, certificate=certificate) as client:
            client.query("letters", [[1.0, 0, 0, 0]])

    with pytest.raises(ModellessError, match=r"[Hh]ostname mismatch"):
        await asyncio.to_thread(ask)
    async with httpx.AsyncClient(verify=trusting(certificate)) as client:
        reply = await client.post(
            f"https://127.0.0.1:{served.port}/v1/query",
            content=json.dumps(query(4)),
            headers=dict(AUTHORIZED),
            extensions={"sni_hostname": "models.example"},
        )
    assert reply.json()["outputs"][0][0] == 4


# -- certificates -------------------------------------------------------------------------------


def test_of_a_gateway_without_tls_no_authorities_are_read() -> None:
    """That would take each client ten times as long as the rest of its start."""
    plain = connection_options("http://127.0.0.1:8000", None, "")["verify"]
    encrypted = connection_options("https://127.0.0.1:8000", None, "")["verify"]

    assert encrypted.get_ca_certs() != []
    assert plain.get_ca_certs() == []
    assert Access(url="http://127.0.0.1:8000").trust().get_ca_certs() == []


def test_a_sound_pair_says_when_it_ends(tmp_path: Path) -> None:
    assert check(*self_signed(tmp_path)).endswith("GMT")


def test_when_a_certificate_ends_is_followed_also_where_it_is_over(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, days=-1)
    followed = FollowedCertificate(*pair)
    before = followed.ends_s
    assert before is not None
    assert before == pytest.approx(time.time() - 86_400, abs=60)
    self_signed(tmp_path, days=3)
    followed.look()
    assert followed.ends_s is not None
    assert followed.ends_s - before == pytest.approx(4 * 86_400, abs=60)


async def test_a_certificate_that_ends_soon_is_told(live_url: str) -> None:
    """In the metrics, and as one sentence beside the plan."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        pair = self_signed(Path(name), days=3)
        trust = trusting(pair.certificate, any_name=True)
        async with (
            serving(Path(name), live_url, tls_cert=pair.certificate, tls_key=pair.key) as served,
            httpx.AsyncClient(base_url=served.gateway.settings.own_url, verify=trust) as client,
        ):
            plan, scraped = await client.get("/v1/plan"), await client.get("/metrics")
    told = plan.json()["certificate"]
    assert told["level"] == "certificate_ends_soon"
    assert told["sentence"].startswith("The gateway's certificate ends in 2 days, at ")
    assert "\nmodelless_certificate_expiry_timestamp_seconds " in scraped.text


def test_an_ended_certificate_is_refused_before_anything_starts(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, days=-1)
    with pytest.raises(InvalidInput, match=r"^setting MODELLESS_TLS_CERT: .* has expired$"):
        check(*pair)
    server_context(*pair)  # a replica goes on with it


def test_a_pair_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    ours, other = self_signed(tmp_path / "a"), self_signed(tmp_path / "b")
    locked = self_signed(tmp_path / "c", password=b"secret")
    (tmp_path / "text").write_text("no PEM")
    for pair, sentence in (
        (Pair("/none.pem", ours.key), "setting MODELLESS_TLS_CERT: /none.pem cannot be read: No"),
        (Pair(ours.certificate, "/none.pem"), "setting MODELLESS_TLS_KEY: /none.pem cannot be re"),
        (Pair(ours.certificate, other.key), "settings MODELLESS_TLS_CERT and MODELLESS_TLS_KEY:"),
        (Pair(str(tmp_path / "text"), ours.key), "settings MODELLESS_TLS_CERT and MODELLESS_TLS_"),
        (locked, "setting MODELLESS_TLS_KEY: the key is encrypted; give it without a password"),
    ):
        with pytest.raises(InvalidInput) as refused:
            server_context(*pair)
        assert refused.value.message.startswith(sentence)
        assert "\n" not in refused.value.message


def test_the_oldest_versions_are_not_spoken(tmp_path: Path) -> None:
    assert server_context(*self_signed(tmp_path)).minimum_version == ssl.TLSVersion.TLSv1_2
