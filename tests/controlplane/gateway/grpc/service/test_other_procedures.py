"""Health, metadata and the repository over gRPC."""

import asyncio

import grpc
import grpc.aio
import pytest

from controlplane.gateway.grpc.messages import message_class
from controlplane.gateway.open_inference.protocol_views import number_of
from tests.controlplane.gateway.grpc.calls import Stubs, error_of, request
from tests.controlplane.serving import FAST, SLOW, Served, query, until
from tests.workers import gated
from variants.types import WorkerId
from workers.runtimes.registry import RUNTIMES


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
