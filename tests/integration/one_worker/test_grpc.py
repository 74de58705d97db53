"""The Open Inference Protocol over gRPC, on real Ray Serve: the same answers as over HTTP."""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from controlplane.gateway.grpc.messages import SERVICE, ModelInferRequest
from tests.integration.deployment import PATIENT, Deployment
from tests.integration.digits import Rows, live
from tests.integration.over_grpc import PATIENCE_S, REPLIES, call, infer, scores

pytestmark = pytest.mark.integration


@pytest.fixture
def channel(digits: Deployment) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{digits.grpc_port}") as opened:
        yield opened


def query(rows: Rows, **fields: Any) -> Any:
    tensor = np.asarray(rows, "<f4")
    request = ModelInferRequest(model_name="digits", raw_input_contents=[tensor.tobytes()])
    request.MergeFrom(ModelInferRequest(**fields))
    request.inputs.add(name="pixels", datatype="FP32", shape=tensor.shape)
    request.parameters["latency_slo_ms"].double_param = PATIENT["latency_ms"]
    return request


def test_a_query_gets_the_scores_of_http(
    digits: Deployment, channel: grpc.Channel, held_out: tuple[Rows, list[int]]
) -> None:
    rows = held_out[0][:2]
    name = live(digits)[0]["name"]
    assert call(channel, "ServerLive").live
    assert call(channel, "ModelReady", name="digits", version=name).ready
    reply = infer(channel, query(rows, model_version=name))
    assert reply.parameters["variant"].string_param == name
    assert np.allclose(scores(reply), digits.query(rows, variant=name).body["outputs"], atol=1e-4)


def test_a_stream_answers_in_order(
    digits: Deployment, channel: grpc.Channel, held_out: tuple[Rows, list[int]]
) -> None:
    rows, labels = held_out
    asked = [query([row], id=str(index)) for index, row in enumerate(rows[:50])]
    ask = channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer", response_deserializer=REPLIES["ModelStreamInfer"]
    )
    found = [
        one.infer_response
        for one in ask(iter([one.SerializeToString() for one in asked]), timeout=PATIENCE_S)
    ]
    assert [one.id for one in found] == [one.id for one in asked]
    right = [int(scores(one).argmax()) == label for one, label in zip(found, labels, strict=False)]
    assert sum(right) >= 40


def test_an_error_keeps_its_code(digits: Deployment, channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, query([[0.0] * 63]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("INVALID_INPUT: input 'pixels' must have shape")


def test_statistics_count_what_was_answered(digits: Deployment, channel: grpc.Channel) -> None:
    name = live(digits)[0]["name"]

    def counted() -> Any:
        (row,) = call(channel, "ModelStatistics", name="digits", version=name).model_stats
        return row

    before = counted()
    infer(channel, query([[0.0] * 64] * 3, model_version=name))
    after = counted()
    assert after.inference_count == before.inference_count + 3
    assert after.execution_count == before.execution_count + 1
