"""A mosec server for one ONNX model: run by mosec's own environment.

``python mosec_server.py --port N ...`` takes mosec's own options; ``PEER_MODEL``, ``PEER_SHAPE``
(of a row), ``PEER_WORKERS``, ``PEER_THREADS`` and ``PEER_BATCH`` say the rest. A body is
``{"x": [numbers]}``, an answer ``{"y": [numbers]}``.
"""

import os
from typing import Any

import numpy as np
import onnxruntime
import orjson
from mosec import Server, Worker

SHAPE = tuple(map(int, os.environ["PEER_SHAPE"].split(",")))
BATCH = int(os.environ["PEER_BATCH"])


class Model(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["PEER_THREADS"])
        options.inter_op_num_threads = 1
        # Threads that spin take the time of the front end.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            os.environ["PEER_MODEL"], options, providers=["CPUExecutionProvider"]
        )
        self.session.run(None, {"x": np.zeros((BATCH, *SHAPE), np.float32)})

    def deserialize(self, data: bytes) -> Any:
        return np.asarray(orjson.loads(data)["x"], np.float32).reshape(SHAPE)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps({"y": data})

    def forward(self, data: Any) -> Any:
        rows = np.stack(data) if BATCH > 1 else data[None]
        found = self.session.run(None, {"x": rows})[0].tolist()
        return found if BATCH > 1 else found[0]


if __name__ == "__main__":
    server = Server()
    number = int(os.environ["PEER_WORKERS"])
    server.append_worker(Model, num=number, max_batch_size=BATCH, max_wait_time=1)
    server.run()
