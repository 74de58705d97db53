"""Streams over gRPC, and messages that come compressed."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from controlplane.gateway.grpc.stream_writer import AHEAD
from tests.controlplane.gateway.grpc.calls import ROW, Stubs, connected, error_of, output, request
from tests.controlplane.gateway.grpc.service.asked import refused
from tests.controlplane.serving import FAST, LATE, SLOW, Served, serving, until
from tests.ports import free_port

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


async def test_an_answer_in_a_stream_says_what_others_say_in_their_metadata(
    served: Served, stubs: Stubs
) -> None:
    await served.worker("w1", FAST)
    alone = await stubs.infer(request(model_version=FAST))
    asked = [request(id="a", model_version=FAST), request(id="b", model_version=FAST)]
    first, second = [one.infer_response async for one in stubs.stream(asked)]
    said = first.parameters.keys() - alone.parameters.keys()
    assert said == {"x-choice-reason", "x-request-id"}
    assert first.parameters["x-choice-reason"].string_param == "pinned"
    assert output(first).tolist() == ROW.tolist()
    ids = [one.parameters["x-request-id"].string_param for one in (first, second)]
    assert len(set(ids)) == 2
    for id_ in ids:
        word = {"request_id": id_, "labels": ["d"]}
        told = await served.ask(word, path="/v1/feedback")
        assert (told.status, told.json["variant"]) == (200, FAST)


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


async def test_what_a_stream_had_asked_that_is_cut_off_does_not_run(served: Served) -> None:
    """More than it may have answered at once: the last of them waits to be taken up."""
    await served.worker("w1", LATE)
    async with connected(served.gateway.settings.grpc_port) as stubs:
        answers = stubs.stream([request(model_version=LATE)] * 100)
        await until(lambda: served.in_flight >= AHEAD)
        answers.cancel()  # type: ignore[attr-defined]
    await until(lambda: served.in_flight == 0)
    counted = served.gateway.path.counters.tasks["letters"]
    answered = sum(variant.met for variant in counted.variants.values())
    assert counted.errors["CLIENT_GONE"] >= AHEAD - 8
    assert answered < 16  # a batch has eight rows


async def test_a_stream_that_ends_in_good_order_has_all_its_answers(
    served: Served, stubs: Stubs
) -> None:
    await served.worker("w1", LATE)
    found = [one async for one in stubs.stream([request(model_version=LATE)] * 10)]
    assert [one.error_message for one in found] == [""] * 10
    assert served.gateway.path.counters.tasks["letters"].errors == {}
