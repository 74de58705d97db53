"""What users of Triton's client for Python do, over HTTP and gRPC; in an environment of its own.

``python triton_session.py HTTP_PORT GRPC_PORT`` ends with 0 when every answer is right.
It imports nothing of ours.
"""

import asyncio
import queue
import sys
from functools import partial
from typing import Any

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.grpc.aio as over_grpc_aio
import tritonclient.http as over_http
import tritonclient.http.aio as over_http_aio

SLO = {"latency_slo_ms": 60_000, "min_accuracy": 0.97}
ROWS = np.random.default_rng(1).integers(0, 17, (3, 64)).astype(np.float32)


def inputs(package: Any, **how: Any) -> list[Any]:
    tensor = package.InferInput("pixels", list(ROWS.shape), "FP32")
    tensor.set_data_from_numpy(ROWS, **how)
    return [tensor]


def http(port: int) -> tuple[Any, str]:
    """Scores, and the variant that gave them."""
    client = over_http.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=60.0)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert {"statistics", "binary_tensor_data"} <= set(client.get_server_metadata()["extensions"])
    assert client.get_model_metadata("digits")["inputs"][0]["shape"] == [-1, 64]
    config = client.get_model_config("digits")
    assert (config["input"][0]["dims"], config["max_batch_size"] >= 3) == ([64], True)
    assert any(row["state"] == "READY" for row in client.get_model_repository_index())
    client.load_model("digits")
    binary = client.infer("digits", inputs(over_http), parameters=SLO)
    found = binary.as_numpy("scores")
    assert found.shape == (3, 10)
    # The same one from now on: another may be cheaper a moment later.
    variant = str(binary.get_response()["parameters"]["variant"])
    same = {"model_version": variant, "parameters": SLO}
    text = client.infer(
        "digits",
        inputs(over_http, binary_data=False),
        outputs=[over_http.InferRequestedOutput("scores", binary_data=False)],
        **same,
    )
    assert np.allclose(found, text.as_numpy("scores"), atol=1e-3)
    pinned = client.infer("digits", inputs(over_http), model_version=variant)
    assert np.allclose(found, pinned.as_numpy("scores"), atol=1e-3)
    later = client.async_infer("digits", inputs(over_http), **same).get_result()
    assert np.allclose(found, later.as_numpy("scores"), atol=1e-3)
    for coding in ("gzip", "deflate"):
        small = client.infer(
            "digits", inputs(over_http), **same,
            request_compression_algorithm=coding, response_compression_algorithm=coding,
        )  # fmt: skip
        assert np.allclose(found, small.as_numpy("scores"), atol=1e-3)
    counted = client.get_inference_statistics("digits")["model_stats"]
    assert sum(one["inference_count"] for one in counted) >= 3 * 4
    classes = [over_http.InferRequestedOutput("scores", class_count=2)]
    best = client.infer("digits", inputs(over_http), outputs=classes, **same)
    labels = [int(row[0].decode().split(":")[1]) for row in best.as_numpy("scores")]
    assert labels == found.argmax(axis=1).tolist()
    client.unload_model("digits")  # takes the pin of the load back
    client.close()
    return found, variant


def grpc(port: int, expected: Any, variant: str) -> None:
    same = {"model_version": variant, "parameters": SLO}
    client = over_grpc.InferenceServerClient(f"127.0.0.1:{port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.get_model_config("digits").config.max_batch_size >= 3
    client.load_model("digits")
    client.unload_model("digits")
    reply = client.infer("digits", inputs(over_grpc), **same)
    assert np.allclose(reply.as_numpy("scores"), expected, atol=1e-3)
    for coding in ("gzip", "deflate"):
        small = client.infer("digits", inputs(over_grpc), compression_algorithm=coding, **same)
        assert np.allclose(small.as_numpy("scores"), expected, atol=1e-3)
    half = over_grpc.InferInput("pixels", list(ROWS.shape), "FP16")
    half.set_data_from_numpy(ROWS.astype(np.float16))
    narrow = client.infer("digits", [half], **same)
    assert np.allclose(narrow.as_numpy("scores"), expected, atol=1e-3)
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(partial(_put, answers))
    for number in range(5):
        client.async_stream_infer("digits", inputs(over_grpc), request_id=str(number), **same)
    for number in range(5):
        result, error = answers.get(timeout=60)
        assert error is None, error
        assert result.get_response().id == str(number)
        assert np.allclose(result.as_numpy("scores"), expected, atol=1e-3)
    client.stop_stream()
    assert client.get_inference_statistics("digits").model_stats
    client.close()


def _put(answers: "queue.Queue[Any]", result: Any, error: Any) -> None:
    answers.put((result, error))


async def asynchronously(http_port: int, grpc_port: int, expected: Any, variant: str) -> None:
    same = {"model_version": variant, "parameters": SLO}
    async with over_http_aio.InferenceServerClient(f"127.0.0.1:{http_port}") as client:
        reply = await client.infer("digits", inputs(over_http_aio), **same)
        assert np.allclose(reply.as_numpy("scores"), expected, atol=1e-3)
    async with over_grpc_aio.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        reply = await client.infer("digits", inputs(over_grpc_aio), **same)
        assert np.allclose(reply.as_numpy("scores"), expected, atol=1e-3)


if __name__ == "__main__":
    ports = int(sys.argv[1]), int(sys.argv[2])
    answered = http(ports[0])
    grpc(ports[1], *answered)
    asyncio.run(asynchronously(*ports, *answered))
    print("as expected")
