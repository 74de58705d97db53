"""gRPC through a real gateway, a real channel and real workers: the same answers as over HTTP."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import psutil
import pytest

from controlplane.gateway.grpc import grpc_server
from controlplane.gateway.grpc.messages import ModelInferResponse, message_class
from controlplane.gateway.grpc.service import STOPPING
from controlplane.gateway.listening import bind
from controlplane.gateway.protocol_views import number_of
from controlplane.http_errors import STATUS
from tests.controlplane.certificates import self_signed
from tests.controlplane.gateway.grpc.calls import (
    ROW,
    Stubs,
    connected,
    error_of,
    output,
    request,
)
from tests.controlplane.serving import DOUBLE, FAST, LATE, SLOW, TASK, Served, query, serving, until
from tests.ports import free_port
from tests.variants.catalog_builders import set_sharing
from tests.workers import gated
from variants.types import Sharing, WorkerId
from workers.runtimes.registry import RUNTIMES

TOKEN = "sixteen characters"


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url, grpc_port=free_port()) as running:
        yield running


@pytest.fixture
async def stubs(served: Served) -> AsyncIterator[Stubs]:
    async with connected(served.gateway.settings.grpc_port) as found:
        yield found


async def refused(stubs: Stubs, asked: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(asked)
    return error_of(caught.value)


# -- inference ----------------------------------------------------------------------------------


async def test_a_query_is_answered_as_over_http(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", DOUBLE)
    reply = await stubs.infer(request(id="7", parameters={"min_accuracy": 0.95}))
    assert output(reply).tolist() == [[2, 10, 4, 6]]
    assert (reply.model_name, reply.model_version, reply.id) == ("letters", DOUBLE, "7")
    told = reply.parameters
    assert told["variant"].string_param == DOUBLE
    assert told["worker"].string_param == "w1"
    assert told["batch_size"].int64_param == 1
    assert told["accuracy"].double_param == 0.95
    assert told["run_ms"].double_param > 0
    assert told["slo_met"].bool_param is True
    assert set(told) == {
        "variant", "model_version", "worker", "batch_size", "queue_ms", "run_ms", "accuracy",
        "cost_usd_per_1k", "slo_met",
    }  # fmt: skip


@pytest.mark.parametrize("version", [FAST, str(number_of("letters", FAST))])
async def test_a_version_pins_a_variant(served: Served, stubs: Stubs, version: str) -> None:
    await served.worker("w1", FAST, DOUBLE)
    reply = await stubs.infer(request(model_version=version))
    assert reply.model_version == FAST
    assert output(reply).tolist() == ROW.tolist()


async def test_values_may_be_listed(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    asked = request()
    del asked.raw_input_contents[:]
    asked.inputs[0].contents.fp32_contents.extend([1, 5, 2, 3])
    assert output(await stubs.infer(asked)).tolist() == ROW.tolist()


async def test_more_rows_than_any_batch_are_refused(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    rows = np.arange(4 * 4096, dtype="<f4").reshape(4096, 4)
    status, text, _ = await refused(stubs, request(rows))
    assert status is grpc.StatusCode.FAILED_PRECONDITION  # no profile knows such a batch
    assert text.startswith("SLO_INFEASIBLE: ")


async def test_an_output_that_is_not_finite_is_no_answer_and_says_so(
    served: Served, stubs: Stubs
) -> None:
    await served.worker("w1", DOUBLE)
    tensor = np.array([[3e38, 0, 0, 0]], "<f4")
    status, text, _ = await refused(stubs, request(tensor, model_version=DOUBLE))
    assert status is grpc.StatusCode.INTERNAL
    assert text.startswith("INTERNAL: the model's answer cannot be given: ")
    assert "for output 'y'" in text


async def test_classes_come_as_bytes(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    asked = request()
    asked.outputs.add(name="y").parameters["classification"].int64_param = 2
    reply = await stubs.infer(asked)
    assert (reply.outputs[0].datatype, list(reply.outputs[0].shape)) == ("BYTES", [1, 2])
    first, second = b"5.000000:1:b", b"3.000000:3:d"
    assert reply.raw_output_contents[0] == b"\x0c\0\0\0" + first + b"\x0c\0\0\0" + second


async def test_an_answer_says_why_its_variant_was_chosen(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    call = stubs.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(
        request(model_version=FAST).SerializeToString()
    )
    await call
    assert dict(await call.trailing_metadata())["x-choice-reason"] == "pinned"


async def test_a_kept_answer_is_given_again_and_says_so(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    sharing = Sharing(ttl_s=3_600.0, memory_mib=1.0)
    set_sharing(served.gateway.catalog, TASK.name, sharing)
    await until(lambda: served.gateway.path.tasks[TASK.name].sharing == sharing)
    infer = stubs.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    answers = []
    for _ in range(2):
        call = infer(request(model_version=FAST).SerializeToString())
        reply = ModelInferResponse.FromString(await call)
        told = dict(await call.trailing_metadata())["cache-status"]
        answers.append((told.partition("; ttl")[0], output(reply).tolist()))
    (missed, made), (hit, again) = answers
    assert (missed, hit) == ("modelless; fwd=miss", "modelless; hit")
    assert made == again
    config = await stubs.call("ModelConfig", name="letters")
    assert config.config.response_cache.enable
    statistics = await stubs.call("ModelStatistics", name="letters")
    assert sum(one.inference_stats.cache_hit.count for one in statistics.model_stats) == 1


async def test_queries_are_counted_with_those_over_http(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    await stubs.infer(request(model_version=FAST))
    assert (await served.ask()).status == 200
    counted = served.gateway.path.counters.tasks["letters"]
    assert counted.variants[FAST].met == 2
    assert served.in_flight == 0


async def test_a_client_that_goes_leaves_nothing_behind(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", LATE)
    call = stubs.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(
        request(model_version=LATE).SerializeToString()
    )
    await until(lambda: served.in_flight > 0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: served.in_flight == 0)
    assert (await stubs.infer(request(model_version=LATE))).model_version == LATE


# -- errors -------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "unknown task": (
        {"model_name": "nope"},
        grpc.StatusCode.NOT_FOUND,
        "TASK_NOT_FOUND: there is no task 'nope'; there are: letters",
    ),
    "unknown version": ({"model_version": "7"}, grpc.StatusCode.NOT_FOUND, "NOT_FOUND: "),
    "unknown input": (
        {"name": "z"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'z' is not an input of the task; expected: x",
    ),
    "wrong datatype": (
        {"datatype": "BYTES"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'x' must have datatype FP32, not 'BYTES'",
    ),
    "too few bytes": (
        {"raw": b"1234"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: input 'x' needs 16 raw bytes, 4 were sent",
    ),
    "infeasible": (
        {"parameters": {"min_accuracy": 0.999}},
        grpc.StatusCode.FAILED_PRECONDITION,
        "SLO_INFEASIBLE: ",
    ),
    "wrong parameter": (
        {"parameters": {"prefer": "beauty"}},
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_INPUT: prefer must be one of: cost, accuracy, latency, energy",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_wrong_has_status_code_and_sentence(
    served: Served, stubs: Stubs, what: str
) -> None:
    await served.worker("w1", FAST)
    fields, status, text = WRONG[what]
    found_status, found_text, metadata = await refused(stubs, request(**fields))
    assert (found_status, found_text[: len(text)]) == (status, text)
    assert metadata["modelless-code"] == text.partition(":")[0]
    assert metadata["modelless-retryable"] == "false"
    assert len(metadata["x-request-id"]) == 16


async def test_an_error_may_say_when_to_come_back(served: Served, stubs: Stubs) -> None:
    status, text, metadata = await refused(stubs, request())
    assert (status, text[:12]) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKERS: ")
    assert metadata["modelless-retryable"] == "true"


async def test_a_message_that_is_none_is_refused(served: Served, stubs: Stubs) -> None:
    for name in ("ModelInfer", "ModelReady"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs.send(name, b"\x0a\xff")
        status, text, _ = error_of(caught.value)
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert text == f"INVALID_INPUT: the message is no {name}Request"


async def test_a_request_keeps_the_id_of_its_caller(served: Served, stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(request(model_name="nope"), (("x-request-id", "mine"),))
    assert error_of(caught.value)[2]["x-request-id"] == "mine"


async def test_needs_in_metadata_are_not_missed(served: Served, stubs: Stubs) -> None:
    """They count for pictures over HTTP."""
    await served.worker("w1", DOUBLE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(request(), (("slo-accuracy", "0.5"),))
    status, text, _ = error_of(caught.value)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert text == (
        "INVALID_INPUT: metadata SLO-Accuracy counts for a picture alone; here the parameter"
        " min_accuracy says it"
    )


async def test_a_message_above_the_limit_is_refused(short_folder: Path, live_url: str) -> None:
    port = free_port()
    async with (
        serving(short_folder, live_url, grpc_port=port, max_body_mib=0.01),
        connected(port) as stubs,
    ):
        status, _, _ = await refused(stubs, request(np.zeros((1000, 4), "<f4")))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED


# -- streams ------------------------------------------------------------------------------------


COMPRESSED = {"grpc.default_compression_algorithm": 2}
"""Of a channel: gzip; 1 is deflate."""


@pytest.mark.parametrize("algorithm", [1, 2], ids=["deflate", "gzip"])
async def test_messages_may_come_compressed(served: Served, algorithm: int) -> None:
    await served.worker("w1", FAST)
    options = {"grpc.default_compression_algorithm": algorithm}
    async with connected(served.gateway.settings.grpc_port, **options) as stubs:
        reply = await stubs.infer(request(model_version=FAST, id="7" * 1_000))
        assert output(reply).tolist() == ROW.tolist()
        assert (await stubs.call("ModelReady", name="letters")).ready
        asked = [request(id="a" * 1_000), request(id="b" * 1_000, model_name="nope"), request()]
        found = [one async for one in stubs.stream(asked)]
        assert [one.infer_response.id[:1] for one in found] == ["a", "b", ""]
        assert [bool(one.error_message) for one in found] == [False, True, False]


async def test_a_compressed_message_is_refused_while_it_is_unpacked(
    short_folder: Path, live_url: str
) -> None:
    async with serving(short_folder, live_url, grpc_port=free_port(), max_body_mib=1) as running:
        await running.worker("w1", FAST)
        large = request(id="7" * 20_000_000)
        async with connected(running.gateway.settings.grpc_port, **COMPRESSED) as stubs:
            code, text, _ = await refused(stubs, large)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert text == "PAYLOAD_TOO_LARGE: the body unpacks to more than 1 MiB"
            found = [one async for one in stubs.stream([large, request()])]
            assert [one.error_message for one in found] == [text, ""]


async def test_of_other_procedures_little_is_unpacked_and_of_open_ones_nothing(
    served: Served,
) -> None:
    options = {**COMPRESSED, "grpc.max_send_message_length": -1}
    async with connected(served.gateway.settings.grpc_port, **options) as stubs:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs.call("ModelReady", name="7" * 300_000)
        assert error_of(caught.value)[1] == (
            "PAYLOAD_TOO_LARGE: the body unpacks to more than 0.25 MiB"
        )
        assert (await stubs.call("ServerLive")).live
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{served.gateway.settings.grpc_port}"
    ) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert await live(b"\x1f\x8b" + bytes(1_000)) == b"\x08\x01"


async def test_a_stream_answers_in_order_and_survives_errors(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST, SLOW)
    asked = [
        request(id="a", model_version=SLOW),
        request(id="b", model_version=FAST),
        request(id="c", model_name="nope"),
        request(id="d", model_version=FAST),
    ]
    found = [(one.infer_response.id, one.error_message) async for one in stubs.stream(asked)]
    assert found == [
        ("a", ""),
        ("b", ""),
        ("c", "TASK_NOT_FOUND: there is no task 'nope'; there are: letters"),
        ("d", ""),
    ]


async def test_a_stream_of_more_than_is_answered_at_once(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    asked = [request(id=str(index), model_version=FAST) for index in range(300)]
    found = [one async for one in stubs.stream(asked)]
    assert [one.infer_response.id for one in found] == [one.id for one in asked]
    assert all(output(one.infer_response).tolist() == ROW.tolist() for one in found)


async def test_a_stream_that_is_cut_off_leaves_nothing_behind(served: Served) -> None:
    await served.worker("w1", LATE)
    async with connected(served.gateway.settings.grpc_port) as stubs:
        answers = stubs.stream([request(model_version=LATE)] * 100)
        await until(lambda: served.in_flight > 0)
        answers.cancel()  # type: ignore[attr-defined]
    await until(lambda: served.in_flight == 0)
    assert (await served.ask()).status in (200, 503)


# -- everything else ----------------------------------------------------------------------------


async def test_health(served: Served, stubs: Stubs) -> None:
    assert (await stubs.call("ServerLive")).live
    assert (await stubs.call("ServerReady")).ready
    assert not (await stubs.call("ModelReady", name="letters")).ready
    await served.worker("w1", FAST)
    assert (await stubs.call("ModelReady", name="letters")).ready
    assert (await stubs.call("ModelReady", name="letters", version=FAST)).ready
    assert not (await stubs.call("ModelReady", name="letters", version=SLOW)).ready


async def test_what_is_not_there_is_not_ready(served: Served, stubs: Stubs) -> None:
    assert not (await stubs.call("ModelReady", name="nope")).ready
    assert not (await stubs.call("ModelReady", name="letters", version="nope")).ready
    assert (await served.get("/v2/models/nope/ready")).status == 404


async def test_what_is_not_there_is_told_with_what_is(served: Served, stubs: Stubs) -> None:
    """By all that names a task, as by queries."""
    said = "there is no task 'nope'; there are: letters"
    for path in ("", "/ready", "/config", "/stats"):
        assert (await served.get(f"/v2/models/nope{path}")).json["error"] == said
    for change in ("load", "unload"):
        reply = await served.ask(b"{}", path=f"/v2/repository/models/nope/{change}")
        assert reply.json["error"] == said
    for call in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stubs.call(call, name="nope")
        assert refused.value.details() == f"TASK_NOT_FOUND: {said}"


async def test_metadata_are_those_of_rest(served: Served, stubs: Stubs) -> None:
    server = await stubs.call("ServerMetadata")
    rest = (await served.get("/v2")).json
    assert (server.name, list(server.extensions)) == (rest["name"], rest["extensions"])
    model = await stubs.call("ModelMetadata", name="letters")
    rest = (await served.get("/v2/models/letters")).json
    assert (model.name, list(model.versions)) == (rest["name"], rest["versions"])
    assert [
        {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
        for one in model.inputs
    ] == rest["inputs"]
    assert model.properties == {str(number_of("letters", name)): name for name in rest["versions"]}


async def test_configuration_and_statistics_are_those_of_rest(served: Served, stubs: Stubs) -> None:
    await served.worker("w1", FAST)
    await stubs.infer(request(model_version=FAST))
    config = (await stubs.call("ModelConfig", name="letters")).config
    rest = (await served.get("/v2/models/letters/config")).json
    assert config.max_batch_size == rest["max_batch_size"] == 8
    assert (
        list(config.version_policy.specific.versions)
        == rest["version_policy"]["specific"]["versions"]
    )
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    stats = (await stubs.call("ModelStatistics", name="letters")).model_stats
    told = {one.version: one for one in stats}[str(number_of("letters", FAST))]
    rest = (await served.get(f"/v2/models/letters/versions/{FAST}/stats")).json["model_stats"][0]
    assert told.inference_count == told.execution_count == rest["inference_count"] == 1
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        duration = getattr(told.inference_stats, part)
        assert {"count": duration.count, "ns": duration.ns} == rest["inference_stats"][part]
    assert len((await stubs.call("ModelStatistics")).model_stats) == 4


async def test_the_repository_lists_and_loads(served: Served, stubs: Stubs) -> None:
    await served.worker("w1")
    assert len((await stubs.call("RepositoryIndex")).models) == 4
    assert len((await stubs.call("RepositoryIndex", ready=True)).models) == 0
    # As Triton's clients ask for it, and as KServe's do.
    assert (await stubs.call("RepositoryModelLoad", model_name="letters")).isLoaded
    assert (await stubs.call("RepositoryModelLoad", repository_name="letters")).isLoaded
    assert len((await stubs.call("RepositoryIndex", ready=True)).models) == 1
    # Triton's clients send a parameter with it.
    asked = message_class("RepositoryModelUnloadRequest")(model_name="letters")
    asked.parameters["unload_dependents"].bool_param = False
    await stubs.send("RepositoryModelUnload", asked.SerializeToString())  # takes the pin back
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.send("RepositoryModelUnload", asked.SerializeToString())
    status, text, _ = error_of(caught.value)
    assert (status, text[:10]) == (grpc.StatusCode.FAILED_PRECONDITION, "CONFLICT: ")
    asked = message_class("RepositoryModelLoadRequest")(model_name="letters")
    asked.parameters["config"].string_param = "{}"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.send("RepositoryModelLoad", asked.SerializeToString())
    assert error_of(caught.value)[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_who_gives_up_a_load_by_name_takes_it_from_nobody_else(
    served: Served, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes = {**RUNTIMES, "echo": gated.ENTRY}
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", runtimes)
    await served.worker("w1")
    gated.GATES.loads.clear()
    try:
        by_name = asyncio.create_task(stubs.call("RepositoryModelLoad", model_name="letters"))
        await until(lambda: bool(served.gateway.known.workers[WorkerId("w1")].view.loading))
        (pin,) = served.gateway.catalog.rules()
        asked = asyncio.create_task(served.ask(query(1, variant=pin.variant)))
        await until(lambda: served.in_flight == 1)
        by_name.cancel()
        await until(lambda: not served.gateway.catalog.rules())  # its end has come here
    finally:
        gated.GATES.open()
    answer = await asked
    assert (answer.status, answer.json.get("variant")) == (200, pin.variant)


async def test_what_the_gateway_does_not_have_is_unimplemented(stubs: Stubs) -> None:
    call = stubs.channel.unary_unary("/inference.GRPCInferenceService/SystemSharedMemoryStatus")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# -- access, and the socket ---------------------------------------------------------------------


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
        await asyncio.sleep(0)
        time.sleep(0.05)  # they come meanwhile  # noqa: ASYNC251
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
