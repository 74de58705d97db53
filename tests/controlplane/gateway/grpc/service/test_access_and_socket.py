"""Who may ask over gRPC, and what becomes of connections."""

import asyncio
import tempfile
import time
from pathlib import Path

import grpc
import grpc.aio
import psutil
import pytest

from controlplane.gateway.grpc import grpc_server
from controlplane.gateway.grpc.service import STOPPING
from controlplane.gateway.listening import bind
from controlplane.http_errors import STATUS
from tests.controlplane.certificates import self_signed
from tests.controlplane.gateway.grpc.calls import Stubs, connected, error_of, output, request
from tests.controlplane.serving import DOUBLE, FAST, LATE, Served, serving, until
from tests.ports import free_port

TOKEN = "sixteen characters"


async def test_queries_that_are_turned_away_count_as_over_http(
    short_folder: Path, live_url: str
) -> None:
    port = free_port()
    async with (
        serving(short_folder, live_url, grpc_port=port, api_token=TOKEN) as served,
        connected(port) as stubs,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await stubs.infer(request())
        with pytest.raises(grpc.aio.AioRpcError):
            await stubs.open_stream().read()
        with pytest.raises(grpc.aio.AioRpcError):
            await stubs.call("ServerMetadata")  # no query
        right = (("authorization", f"Bearer {TOKEN}"),)
        with pytest.raises(grpc.aio.AioRpcError):
            await stubs.send("ModelInfer", b"\x1f\x8b no gzip", right)
        counted = served.gateway.path.counters.task("").errors
        assert counted == {"UNAUTHENTICATED": 2, "INVALID_INPUT": 1}


async def test_the_token_is_asked_for(short_folder: Path, live_url: str) -> None:
    port = free_port()
    async with (
        serving(short_folder, live_url, grpc_port=port, api_token=TOKEN),
        connected(port) as stubs,
    ):
        assert (await stubs.call("ServerLive")).live
        for metadata in ((), (("authorization", "Bearer no"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stubs.call("ServerMetadata", metadata)
            status, text, _ = error_of(caught.value)
            assert status is grpc.StatusCode.UNAUTHENTICATED
            assert text.startswith("UNAUTHENTICATED: ")
        right = (("authorization", f"Bearer {TOKEN}"),)
        assert (await stubs.call("ServerMetadata", right)).name == "modelless"


async def test_calls_of_a_page_are_refused(served: Served, stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.call("ServerLive", (("origin", "https://elsewhere.example"),))
    assert error_of(caught.value)[0] is grpc.StatusCode.PERMISSION_DENIED


def trusting(certificate: str) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(Path(certificate).read_bytes())


async def test_it_speaks_tls_where_http_does(
    short_folder: Path, live_url: str, tmp_path: Path
) -> None:
    port = free_port()
    certificate, key = self_signed(tmp_path)
    credentials = trusting(certificate)
    async with (
        serving(short_folder, live_url, grpc_port=port, tls_cert=certificate, tls_key=key),
        connected(
            port, credentials, **{"grpc.ssl_target_name_override": "models.example"}
        ) as stubs,
    ):
        assert (await stubs.call("ServerLive")).live


async def test_gateways_share_the_port(live_url: str) -> None:
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as one,
        tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as two,
    ):
        async with serving(Path(one), live_url, grpc_port=port):
            async with serving(Path(two), live_url, grpc_port=port) as second:
                bind(second.gateway.settings, port=port).close()
            async with connected(port) as stubs:
                assert (await stubs.call("ServerLive")).live


async def test_a_client_that_stays_connects_anew_now_and_then_and_loses_nothing(
    short_folder: Path, live_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it finds gateways that were started after it came."""
    monkeypatch.setattr(grpc_server, "AGE_S", 0.2)
    async with serving(short_folder, live_url, grpc_port=free_port()) as served:
        await served.worker("w1", DOUBLE)
        port = served.gateway.settings.grpc_port
        async with connected(port) as stubs, connected(port) as streaming:
            stream = streaming.open_stream()
            clients: set[int] = set()
            while len(clients) < 5:
                assert output(await stubs.infer(request())).tolist() == [[2, 10, 4, 6]]
                await stream.write(request())
                reply = (await stream.read()).infer_response
                assert output(reply).tolist() == [[2, 10, 4, 6]]
                clients |= {
                    one.laddr.port
                    for one in psutil.Process().net_connections("tcp")
                    if one.raddr[1:] == (port,)
                }
            await stream.done_writing()


async def test_a_gateway_that_stops_answers_what_is_in_flight(served: Served) -> None:
    await served.worker("w1", LATE)
    async with connected(served.gateway.settings.grpc_port) as stubs:
        asked = asyncio.ensure_future(stubs.infer(request(model_version=LATE)))
        await until(lambda: served.in_flight > 0)
        await served.gateway.stop()
        assert (await asked).model_version == LATE


async def test_a_gateway_that_stops_does_not_end_a_stream_as_if_it_were_done(
    served: Served,
) -> None:
    """Its client would wait for answers that never come."""
    await served.worker("w1", FAST)
    async with connected(served.gateway.settings.grpc_port) as stubs:
        asks_on, is_done = stubs.open_stream(), stubs.open_stream()
        for stream in (asks_on, is_done):
            await stream.write(request(model_version=FAST))
            await stream.read()
        for stream in (asks_on, is_done):
            await stream.write(request(model_version=FAST))
        await is_done.done_writing()
        idle = stubs.open_stream()
        await idle.write(request(model_version=FAST))
        await idle.read()
        stopping = asyncio.ensure_future(served.gateway.stop())
        for stream in (asks_on, is_done):
            assert (await stream.read()).infer_response.model_version == FAST
        assert await is_done.read() is grpc.aio.EOF
        for stream in (asks_on, idle):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            status, text, metadata = error_of(caught.value)
            assert (status, metadata["modelless-code"]) == (
                grpc.StatusCode.UNAVAILABLE,
                "REPLICA_LOST",
            )
            assert text == f"REPLICA_LOST: {STOPPING}"
        async with asyncio.timeout(grpc_server.GRACE_S):  # nobody is waited for
            await stopping


async def test_a_gateway_that_stops_first_takes_up_what_has_come(served: Served) -> None:
    """The loop may have been busy; the library cancels what no handler has begun."""
    await served.worker("w1", FAST)
    async with connected(served.gateway.settings.grpc_port) as stubs:
        await stubs.infer(request(model_version=FAST))
        asked = [asyncio.ensure_future(stubs.infer(request(model_version=FAST))) for _ in range(8)]
        await asyncio.sleep(0)  # the calls are made, ...
        await asyncio.sleep(0)  # ... and begun
        time.sleep(0.5)  # they come meanwhile, on a busy machine as well  # noqa: ASYNC251
        await served.gateway.stop()
        assert [one.model_version for one in await asyncio.gather(*asked)] == 8 * [FAST]


async def test_a_port_that_is_taken_ends_the_start(short_folder: Path, live_url: str) -> None:
    async with serving(short_folder, live_url) as running:
        taken = bind(running.gateway.settings, alone=True, port=free_port())
        port = taken.getsockname()[1]
        with (
            taken,
            tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as other,
            pytest.raises(OSError, match="in use"),
        ):
            async with serving(Path(other), live_url, grpc_port=port):
                pass


def test_every_code_has_a_status() -> None:
    from controlplane.gateway.grpc.statuses import STATUSES

    assert STATUSES.keys() == STATUS.keys()
