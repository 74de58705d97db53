"""What vectors cost as OpenAI's clients ask for them: ``python -m tests.bench.texts.vectors``.

A model that adds up the vectors of a text's tokens, 384 numbers, is served. One client asks it for
one text over ``/v1/query`` and over ``/v1/embeddings``, in turns: what a query takes, and how much
of a processor all processes of the installation take for it. Then it asks for many texts in one
request, and as many clients as that has queries in flight ask for the same texts one by one.
"""

import argparse
import json
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from controlplane.gateway.embeddings.answering import AT_ONCE
from tests import onnx_models
from tests.bench import machine
from tests.bench.live.texts import LENGTHS, one_at_a_time, sources, word_pieces
from tests.bench.serving.lone import Asked, exchanged
from tests.integration.deployment import CLI, Deployment, deployed, environment, short_directory
from tests.onnx_models import node, tensor
from tests.ports import free_port

WIDTH = 384
CHARACTERS = 200


def encoder(words: int) -> onnx.ModelProto:
    """The sum of the vectors of a text's tokens, times a square matrix."""
    drawn = np.random.default_rng(0)
    return onnx_models.model(
        inputs=[
            tensor("input_ids", "batch", "tokens", kind=TensorProto.INT64),
            tensor("attention_mask", "batch", "tokens", kind=TensorProto.INT64),
        ],
        nodes=[
            node("Gather", ("known", "input_ids"), "each"),
            node("Cast", ("attention_mask",), "mask", to=TensorProto.FLOAT),
            node("Unsqueeze", ("mask", "last"), "column"),
            node("Mul", ("each", "column"), "kept"),
            node("ReduceSum", ("kept", "axis"), "sum", keepdims=0),
            node("MatMul", ("sum", "square"), "vector"),
        ],
        outputs=[tensor("vector", "batch", WIDTH)],
        weights={
            "known": drawn.normal(size=(words, WIDTH)).astype(np.float32),
            "square": drawn.normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH,
            "axis": np.array([1]),
            "last": np.array([2]),
        },
    )


def register(folder: Path, tokenizer: bytes, lines: list[str]) -> None:
    rows = [json.dumps({"text": line, "label": n % 2}) for n, line in enumerate(lines[:200])]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    (folder / "tokenizer.json").write_bytes(tokenizer)
    onnx.save(encoder(len(json.loads(tokenizer)["model"]["vocab"])), folder / "encoder.onnx")
    subprocess.run(
        [
            *CLI, "register", folder / "encoder.onnx", "--task", "search", "--metric", "nearest",
            "--eval", folder / "rows.jsonl", "--tokenizer", folder / "tokenizer.json",
            "--lengths", ",".join(map(str, LENGTHS)), "--variants", "onnx-fp32", "--quick",
        ],
        env=environment(folder / "s", free_port()), stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def asked(port: int, path: str, body: dict[str, Any]) -> Asked:
    data = json.dumps(body).encode()
    head = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
    named = head % (path.encode(), port)
    return Asked("", named + b"content-length: %d\r\n\r\n%s" % (len(data), data), 200)


def vectors(port: int, texts: list[str], **more: Any) -> Asked:
    slo = {"latency_ms": 1_000}
    return asked(port, "/v1/embeddings", {"model": "search", "input": texts, "slo": slo, **more})


def by_clients(running: Deployment, ways: list[Asked], clients: int) -> float:
    """Texts a second, if so many clients ask for one each time."""

    def ask(own: list[Asked]) -> None:
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            for way in own:
                exchanged(connection, way)

    began_s = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, [ways[at::clients] for at in range(clients)]))
    return len(ways) / (time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.texts.vectors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--many", type=int, default=512)
    given = parser.parse_args()
    print(machine.describe())
    lines = sources()
    long = " ".join(lines)
    with short_directory() as home:
        folder = Path(home)
        register(folder, word_pieces(lines), lines)
        with deployed(folder / "s", gateways=1) as running:
            ready = "/v2/models/search/ready"
            running.until(lambda: running.request("GET", ready).status == 200, "all lengths")
            port, text = running.port, long[:CHARACTERS]
            body = {"task": "search", "slo": {"latency_ms": 1_000}, "inputs": [text]}
            ways = {
                "/v1/query": asked(port, "/v1/query", body),
                "/v1/embeddings": vectors(port, [text]),
                "/v1/embeddings, base64": vectors(port, [text], encoding_format="base64"),
            }
            one_at_a_time(running, ways, given.rounds, given.count)
            # Of all lengths up to twice the one above.
            many = [long[at * 97 :][: 1 + at * 31 % (2 * CHARACTERS)] for at in range(given.many)]
            at_once = {
                f"{given.many} texts": vectors(port, many),
                f"{given.many} texts, base64": vectors(port, many, encoding_format="base64"),
            }
            one_at_a_time(running, at_once, given.rounds, 3, given.many)
            each = [vectors(port, [text], encoding_format="base64") for text in many]
            rates = [by_clients(running, each, AT_ONCE) for _ in range(given.rounds)]
            print(f"one by one from {AT_ONCE} clients: {median(rates):.0f} texts a second")


if __name__ == "__main__":
    main()
