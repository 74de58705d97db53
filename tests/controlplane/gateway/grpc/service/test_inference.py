"""Queries over gRPC are answered as over HTTP."""

import asyncio
import logging

import grpc
import grpc.aio
import numpy as np
import pytest

from controlplane.gateway.grpc.messages import ModelInferResponse
from controlplane.gateway.open_inference.protocol_views import number_of
from tests.controlplane.gateway.grpc.calls import ROW, Stubs, output, request
from tests.controlplane.gateway.grpc.service.asked import refused
from tests.controlplane.serving import DOUBLE, FAST, LATE, TASK, Served, until
from tests.variants.catalog_builders import set_sharing
from variants.types import Sharing


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


async def test_messages_that_fail_fill_no_log(
    served: Served, stubs: Stubs, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither ones that overflow a model nor ones that are none; counters have all."""
    await served.worker("w1", DOUBLE)
    overflowing = request(np.array([[3e38, 0, 0, 0]], "<f4"), model_version=DOUBLE)
    for _ in range(1_000):
        assert (await refused(stubs, overflowing))[0] is grpc.StatusCode.INTERNAL
        with pytest.raises(grpc.aio.AioRpcError):
            await stubs.send("ModelInfer", b"\xff\xff no message")
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert 1 <= len(lines) <= 4
    assert served.gateway.path.counters.task("letters").errors == {"INTERNAL": 1_000}


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
    assert served.gateway.path.counters.tasks["letters"].errors == {"CLIENT_GONE": 1}
    assert (await stubs.infer(request(model_version=LATE))).model_version == LATE
