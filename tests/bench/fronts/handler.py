"""What every front has to do with a request: read a query as the gateway does, and answer it."""

import os

import numpy as np

from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.replies import ReplyMetadata, encode_v1
from variants.types import Slo, Task, TaskName, TensorSpec

WIDTH = "FRONT_WIDTH"
"""Environment variable: numbers in a row."""

_TASK = Task(
    name=TaskName("digits"),
    inputs=(TensorSpec(name="x", dtype="float32", shape=(int(os.environ.get(WIDTH, "16")),)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(10,)),),
    labels=tuple("0123456789"),
    slo=Slo(latency_ms=1_000.0),
)
TASKS = {_TASK.name: _TASK}
_METADATA = ReplyMetadata("v", "m-v1", "w1", 1, 0.02, 0.01, 0.9, 1e-7, True)
_SCORES = [np.full((1, 10), 0.1, np.float32)]


def answer(body: bytes | bytearray) -> bytes:
    """The body of the answer."""
    parsed = parse_v1(body, TASKS, 0.0, 7)
    return encode_v1(parsed.task, _SCORES, _METADATA)
