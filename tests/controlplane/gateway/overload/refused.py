"""What several tests of repeated refusals take."""

from typing import Any

import orjson

from tests.planner.builders import DIGITS

ROW = [[0.25] * 64]


def body(inputs: Any = ROW, **fields: Any) -> bytes:
    text = orjson.dumps({"task": DIGITS, "inputs": inputs, **fields})
    return text.replace(b"[", b"[" + b" " * 2_000, 1)


def inference(data: str, *, shape: str = "[1, 64]", more: str = "", tail: str = "") -> bytes:
    one = f'{{"name": "x", "shape": {shape}, "datatype": "FP32"{more}, "data": {data}}}'
    return f'{{"inputs": [{one}]{tail}}}'.encode()
