"""What a text costs beside its numbers: ``python -m tests.bench.live.texts``.

First what a tokenizer takes to be loaded, in a process of its own: one of some 30,000 word pieces,
made of the sources of Python's library, and one of 250,000 pieces of nothing. Then a model that
looks one number up for each token is served, and one client asks it with texts and with the same
rows as numbers, in turns: what a query takes, and how much of a processor all processes of the
installation take for it. ``--crowd`` clients at once show how many texts a gateway reads. Last, a
second model with a tokenizer of its own joins the task, and the same texts are asked again.
"""

import argparse
import json
import random
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from tests.bench import machine
from tests.bench.serving.lone import Asked, exchanged
from tests.integration.deployment import CLI, Deployment, deployed, environment, short_directory
from tests.ports import free_port
from tests.texts import opinion_model

LENGTHS = (32, 128, 512)
CHARACTERS = (40, 200, 1_000)
WARM_UP = 30


def sources() -> list[str]:
    """Lines of text: the docstrings and comments of Python's own library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for path in sorted(folder.glob("*.py")):
        found += [line.strip() for line in path.read_text(errors="ignore").splitlines()]
    return [line for line in found if len(line) > 20]


def word_pieces(lines: list[str]) -> bytes:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=30_000, special_tokens=special, show_progress=False
    )
    made.train_from_iterator(lines, trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return str(made.to_str()).encode()


def byte_pairs(lines: list[str]) -> bytes:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=30_000, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(lines, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return str(made.to_str()).encode()


def pieces_of_nothing(count: int = 250_000) -> bytes:
    from tokenizers import Tokenizer, models

    draw = random.Random(0)
    words = (
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 12)))
        for _ in range(count)
    )
    pieces = [("<unk>", 0.0), *((f"\u2581{word}{n}", -15.0) for n, word in enumerate(words))]
    return str(Tokenizer(models.Unigram(pieces, unk_id=0)).to_str()).encode()


LOAD = """
import sys, time, psutil
from pathlib import Path
from variants.texts.tokenising import Tokeniser
import tokenizers
data, own = Path(sys.argv[1]).read_bytes(), psutil.Process()
before, began = own.memory_info().rss, time.process_time()
made = Tokeniser(data, "t")
print(time.process_time() - began, (own.memory_info().rss - before) / 2**20)
"""


def loads(folder: Path, kinds: dict[str, bytes]) -> None:
    print("| tokenizer | file | loading takes | memory |\n|---|--:|--:|--:|")
    for name, data in kinds.items():
        path = folder / "loaded.json"
        path.write_bytes(data)
        ran = subprocess.run(
            [sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True
        )
        took_s, mib = map(float, ran.stdout.split())
        print(f"| {name} | {len(data) / 2**20:.1f} MiB | {took_s:.2f} s | {mib:.0f} MiB |")


def register(folder: Path, name: str, tokenizer: bytes, *options: str) -> None:
    """A model that looks up the numbers of a tokenizer."""
    count = len(json.loads(tokenizer)["model"]["vocab"])
    worth = np.random.default_rng(0).normal(size=count).astype(np.float32)
    weights = {"worth": worth, "axis": np.array([1]), "signs": np.array([[-1.0, 1.0]], np.float32)}
    onnx.save(opinion_model(weights=weights), folder / f"{name}.onnx")
    (folder / f"{name}.json").write_bytes(tokenizer)
    subprocess.run(
        [
            *CLI, "register", folder / f"{name}.onnx", "--task", "texts", "--eval",
            folder / "rows.jsonl", "--tokenizer", folder / f"{name}.json",
            "--variants", "onnx-fp32", "--quick", *options,
        ],
        env=environment(folder / "s", free_port()), stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


@contextmanager
def serving(folder: Path, tokenizer: bytes, lines: list[str]) -> Iterator[Deployment]:
    """A model of texts at three lengths, which looks numbers up."""
    state = folder / "s"
    rows = [json.dumps({"text": line, "label": n % 2}) for n, line in enumerate(lines[:200])]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    register(folder, "model", tokenizer, "--lengths", ",".join(map(str, LENGTHS)))
    with deployed(state, gateways=1) as running:
        running.until(
            lambda: running.request("GET", "/v2/models/texts/ready").status == 200, "all lengths"
        )
        yield running


def asked(port: int, inputs: Any) -> Asked:
    body = json.dumps({"task": "texts", "slo": {"latency_ms": 1000}, "inputs": inputs}).encode()
    head = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
    return Asked("", head % port + b"content-length: %d\r\n\r\n%s" % (len(body), body), 200)


def processor_s(running: Deployment) -> float:
    """Of all processes of the installation until now."""
    times = [process.cpu_times() for process in running.processes()]
    return float(sum(one.user + one.system for one in times))


def one_at_a_time(
    running: Deployment, ways: dict[str, Asked], rounds: int, count: int, texts: int = 1
) -> None:
    """Ask in each way, in turns; ``texts``: in a request, of which each counts by itself."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    used: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with socket.create_connection(("127.0.0.1", running.port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(min(WARM_UP, count)):
                    exchanged(connection, way)
                before_s, each = processor_s(running), []
                for _ in range(count):
                    each.append(exchanged(connection, way)[0])
                used[name].append(1_000 * (processor_s(running) - before_s) / count / texts)
                took[name].append(median(each))
    print("| a query of | p50 | processor for a text |\n|---|--:|--:|")
    for name in ways:
        print(f"| {name} | {median(took[name]):.2f} ms | {median(used[name]):.2f} ms |")


def crowded(running: Deployment, way: Asked, clients: int, seconds: float) -> None:
    ends_s = time.monotonic() + seconds

    def ask() -> int:
        done = 0
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            while time.monotonic() < ends_s:
                exchanged(connection, way)
                done += 1
        return done

    with ThreadPoolExecutor(clients) as pool:
        answered = sum(future.result() for future in [pool.submit(ask) for _ in range(clients)])
    print(f"{clients} clients at once: {answered / seconds:.0f} texts a second")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.texts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--crowd", type=int, default=16)
    given = parser.parse_args()
    print(machine.describe())
    lines = sources()
    words = word_pieces(lines)
    with short_directory() as home:
        folder = Path(home)
        loads(folder, {"30,000 word pieces": words, "250,000 pieces": pieces_of_nothing()})
        from variants.texts.tokenising import Tokeniser

        tokeniser, long = Tokeniser(words, "t"), " ".join(lines)
        with serving(folder, words, lines) as running:
            ways = {}
            for size in CHARACTERS:
                text = long[:size]
                [found] = tokeniser.read([text], None)
                ids = found.ids.tolist()
                rows = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
                ways[f"{size} characters, as text"] = asked(running.port, [text])
                ways[f"{size} characters, as {len(ids)} numbers"] = asked(running.port, rows)
            one_at_a_time(running, ways, given.rounds, given.count)
            crowded(running, asked(running.port, [long[:200]]), given.crowd, 5.0)
            register(folder, "other", byte_pairs(lines))
            running.until(
                lambda: running.get("/v1/tasks/texts")["text"]["others"], "a second tokenizer"
            )
            ways = {f"{name}, by two": way for name, way in ways.items() if name.endswith("text")}
            one_at_a_time(running, ways, given.rounds, given.count)
            crowded(running, asked(running.port, [long[:200]]), given.crowd, 5.0)


if __name__ == "__main__":
    main()
