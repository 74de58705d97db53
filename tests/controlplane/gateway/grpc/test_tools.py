"""What probes, tools and generated clients ask of any server of gRPC."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import orjson
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from controlplane.gateway.grpc.messages import METHODS, ProtoFile
from controlplane.gateway.grpc.reflection import FILES, HEALTH, REFLECTION, VERSIONS
from controlplane.gateway.grpc.statuses import DETAILS, LONGEST, status_of
from tests.controlplane.gateway.grpc.calls import Stubs, connected, error_of, request
from tests.controlplane.serving import ANSWER_S, FAST, Served, serving
from tests.ports import free_port

TOKEN = "a token of 16 and more"
MINE = (("authorization", f"Bearer {TOKEN}"),)


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url, grpc_port=free_port(), api_token=TOKEN) as running:
        yield running


@pytest.fixture
async def stubs(served: Served) -> AsyncIterator[Stubs]:
    async with connected(served.gateway.settings.grpc_port) as found:
        yield found


# -- probes ---------------------------------------------------------------------------------------


async def check(stubs: Stubs, service: str) -> int:
    asked = HEALTH.message_class("HealthCheckRequest")(service=service)
    reply = HEALTH.message_class("HealthCheckResponse")
    call = stubs.channel.unary_unary(
        "/grpc.health.v1.Health/Check", response_deserializer=reply.FromString
    )
    found = await call(asked.SerializeToString(), timeout=ANSWER_S)
    return int(found.status)


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService"])
async def test_a_probe_needs_no_token(served: Served, stubs: Stubs, service: str) -> None:
    assert await check(stubs, service) == 1
    served.gateway.views.is_ready = lambda: False
    assert await check(stubs, service) == 2


async def test_a_probe_of_what_is_not_there(stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(stubs, "letters")
    status, text, _ = error_of(caught.value)
    assert status is grpc.StatusCode.NOT_FOUND
    assert text == (
        "NOT_FOUND: there is no service 'letters'; there is: inference.GRPCInferenceService"
    )


# -- tools ----------------------------------------------------------------------------------------


async def reflect(
    stubs: Stubs, *asked: Any, version: str = VERSIONS[0], metadata: Any = MINE
) -> list[Any]:
    request_class = REFLECTION.message_class("ServerReflectionRequest")
    reply = REFLECTION.message_class("ServerReflectionResponse")
    call = stubs.channel.stream_stream(
        f"/{version}/ServerReflectionInfo", response_deserializer=reply.FromString
    )
    sent = [request_class(**one).SerializeToString() for one in asked]
    return [one async for one in call(iter(sent), timeout=ANSWER_S, metadata=metadata)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_tool_learns_what_can_be_called(stubs: Stubs, version: str) -> None:
    asked: list[dict[str, Any]] = [
        {"list_services": ""},
        {"file_containing_symbol": "inference.GRPCInferenceService"},
        {"file_containing_symbol": "inference.ModelInferRequest"},
        {"file_containing_symbol": "inference.GRPCInferenceService.ModelInfer"},
        {"file_by_filename": "open_inference.proto"},
        {"file_containing_symbol": "inference.Nope"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {},
    ]
    listed, *files, missing, extensions, nothing = await reflect(stubs, *asked, version=version)
    assert [one.name for one in listed.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "inference.GRPCInferenceService",
    ]
    for one in files:
        [data] = one.file_descriptor_response.file_descriptor_proto
        file = FileDescriptorProto.FromString(data)
        [service] = file.service
        assert [method.name for method in service.method] == [method.name for method in METHODS]
        streams = [method.name for method in service.method if method.server_streaming]
        assert streams == ["ModelStreamInfer"]
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert missing.error_response.error_message == "there is no 'inference.Nope'"
    assert extensions.error_response.error_code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert nothing.error_response.error_code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert extensions.original_request.all_extension_numbers_of_type


async def test_a_tool_needs_the_token(stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reflect(stubs, {"list_services": ""}, metadata=())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_what_a_file_describes_is_found_in_it() -> None:
    for file in FILES:
        assert all(map(file.has, file.services))
        package = file.described.package
        names = [one.name for one in [*file.described.message_type, *file.described.enum_type]]
        assert all(file.has(f"{package}.{name}") for name in names)
        assert not file.has(package)


# -- typed errors ---------------------------------------------------------------------------------


def details_of(data: bytes) -> tuple[Any, dict[str, Any]]:
    file = ProtoFile("error_details.proto")
    status = file.message_class("Status").FromString(data)
    parts = {}
    for one in status.details:
        prefix, _, name = one.type_url.rpartition(".")
        assert prefix == "type.googleapis.com/google.rpc"
        parts[name] = file.message_class(name).FromString(one.value)
    return status, parts


async def test_an_error_has_typed_details(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(request(parameters={"min_accuracy": 0.999}), MINE)
    code, text, metadata = error_of(caught.value)
    alternatives = orjson.loads(metadata["modelless-alternatives"])
    assert [set(one) for one in alternatives] == 3 * [
        {"variant", "accuracy", "latency_ms", "cost_usd_per_1k", "reason", "energy_j"}
    ]
    typed: Any = metadata[DETAILS]
    status, parts = details_of(typed)
    assert (status.code, status.message) == (code.value[0], text)
    assert (parts["ErrorInfo"].reason, parts["ErrorInfo"].domain) == ("SLO_INFEASIBLE", "modelless")
    assert dict(parts["ErrorInfo"].metadata) == {"retryable": "false"}
    assert parts["RequestInfo"].request_id == metadata["x-request-id"]
    assert "RetryInfo" not in parts


async def test_an_error_of_a_stream_has_its_alternatives(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    stream = stubs.open_stream(MINE)
    await stream.write(request(parameters={"min_accuracy": 0.999}))
    told = (await stream.read()).infer_response.parameters
    assert len(orjson.loads(told["modelless-alternatives"].string_param)) == 3
    assert DETAILS not in told
    await stream.done_writing()


def test_a_time_to_come_back_is_typed() -> None:
    body = {"code": "COLD", "error": "cold", "retryable": True, "request_id": "a"}
    _, _, metadata = status_of(body | {"retry_after_s": 2.25})
    _, parts = details_of(dict(metadata)[DETAILS])  # type: ignore[arg-type]
    delay = parts["RetryInfo"].retry_delay
    assert (delay.seconds, delay.nanos) == (2, 250_000_000)


def test_all_of_an_error_fits_into_what_a_client_takes() -> None:
    alternative = {
        "variant": "v" * 128, "accuracy": 1 / 3, "latency_ms": 1 / 3, "cost_usd_per_1k": 1 / 3,
        "reason": "r" * 500, "energy_j": None,
    }  # fmt: skip
    _, text, metadata = status_of(
        {
            "code": "SLO_INFEASIBLE", "error": "e" * 9_000, "retryable": False,
            "request_id": "i" * 64, "retry_after_s": 1.5, "alternatives": [alternative] * 3,
        }
    )  # fmt: skip
    assert len(text) == LONGEST
    sizes = [len(name) + 32 + len(value) * (4 / 3 if name == DETAILS else 1)
             for name, value in metadata]  # fmt: skip
    assert len(text) + sum(sizes) < 8_192
    assert len(orjson.loads(dict(metadata)["modelless-alternatives"])) == 1
