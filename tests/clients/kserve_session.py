"""What users of KServe's Python client do: run by the client's own environment.

``python kserve_session.py HTTP_PORT GRPC_PORT`` ends with 0 when every answer is right. It imports
nothing of ours.
"""

import asyncio
import sys

import numpy as np
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)

ROWS = np.random.default_rng(1).integers(0, 17, (2, 64)).astype(np.float32)


def request(variant: str | None = None) -> InferRequest:
    tensor = InferInput("pixels", list(ROWS.shape), "FP32")
    tensor.set_data_from_numpy(ROWS, binary_data=False)
    return InferRequest(
        model_name="digits",
        model_version=variant,
        infer_inputs=[tensor],
        parameters={"latency_slo_ms": 60_000},
    )


async def session(http_port: int, grpc_port: int) -> None:
    url = f"http://127.0.0.1:{http_port}"
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, "digits")
    reply = await client.infer(url, request(), model_name="digits")
    scores = reply.outputs[0].as_numpy()
    assert scores.shape == (2, 10)
    assert np.allclose(scores.sum(axis=1), 1.0, atol=1e-2)
    await client.close()
    stubs = InferenceGRPCClient(f"127.0.0.1:{grpc_port}", timeout=60)
    assert await stubs.is_server_live()
    assert await stubs.is_model_ready("digits")
    variant = reply.parameters["variant"]  # another one may be cheaper a moment later
    same = (await stubs.infer(request(variant))).outputs[0].as_numpy()
    assert np.allclose(same, scores, atol=1e-3)
    await stubs.close()


if __name__ == "__main__":
    asyncio.run(session(int(sys.argv[1]), int(sys.argv[2])))
    print("as expected")
