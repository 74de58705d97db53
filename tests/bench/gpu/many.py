"""100 models on a GPU whose memory holds a part of them: ``python -m tests.bench.gpu.many``.

ResNet-50 and an encoder of BERT-base's size are registered and measured on the GPU. Each of 100
tasks then gets one of them in turn: the same artifact and the same profile under the task's own
name, so that to the worker these are 100 models. The variants for the CPU, which registration
measures beside them, are left out. Queries follow a Zipf distribution whose head
moves. The same trace is played with each eviction rule, each beginning with a fresh installation.
The GPU's worker may take 8 GiB for variants.
"""

import argparse
import json
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from controlplane.gpus import machine_gpus
from tests.bench.gpu.models import MODELS, export
from tests.bench.live.residency import drawn, played, register_copies
from tests.integration.deployment import CLI, deployed, environment, short_directory
from tests.integration.trace_player import Asked
from tests.ports import free_port
from variants.catalog.sql import open_catalog

TASKS = 100
MEMORY_MIB = 8_192
VARIANT = "onnx-fp16-cuda"
NAMES = ("bert-base", "resnet50")
START_S = 90.0
ROWS = 8
"""Different rows of each model."""


def slices(memory_mib: float, cores: int) -> str:
    """One worker on the first GPU, with so much memory, and one on cores to compare with."""
    return f"1xcpu-{cores},1x{machine_gpus()[0].kind}:memory_mib={memory_mib:g}"


def prepare(state: Path, folder: Path, layout: str, seed: int) -> None:
    """A state directory with the tasks."""
    originals = folder / "originals"
    settings = environment(originals, free_port(), slices=layout)
    for name in NAMES:
        path, rows = export(MODELS[name], folder)
        command = [*CLI, "register", str(path), "--task", name, "--eval", str(rows)]
        command += ["--variants", VARIANT, "--progress", "none", "--measure", "sampled"]
        subprocess.run(command, env=settings, check=True)
    shutil.copytree(originals / "artifacts", state / "artifacts")
    with (
        closing(open_catalog(f"sqlite:///{originals / 'catalog.db'}")) as measured,
        closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog,
    ):
        known = measured.snapshot()
        on_gpu = replace(
            known,
            variants=tuple(one for one in known.variants if one.name.endswith(VARIANT)),
            profiles=tuple(one for one in known.profiles if one.variant.endswith(VARIANT)),
        )
        register_copies(on_gpu, catalog, seed, TASKS)


def requests(original: str) -> list[tuple[bytes, bytes]]:
    """Heads without a task, and bodies: bytes of a row go in, JSON comes out."""
    found = []
    for row in MODELS[original].rows(ROWS):
        kind = "INT64" if row.dtype == "int64" else "FP32"
        tensor = {
            "name": "x", "datatype": kind, "shape": [1, *row.shape],
            "parameters": {"binary_data_size": row.nbytes},
        }  # fmt: skip
        head = json.dumps({"inputs": [tensor]}).encode()
        lengths = b"inference-header-content-length: %d\r\ncontent-length: %d\r\n\r\n" % (
            len(head),
            len(head) + row.nbytes,
        )
        found.append((lengths, head + row.tobytes()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.many")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--qps", type=float, default=40.0)
    parser.add_argument("--moves", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory-mib", type=float, default=MEMORY_MIB)
    parser.add_argument("--rules", default="lru,gdsf,modelless")
    parser.add_argument("--cores", type=int, default=8, help="of the worker without a GPU")
    asked = parser.parse_args()
    layout = slices(asked.memory_mib, asked.cores)
    queries, _ = drawn(asked.seconds, asked.qps, asked.moves, asked.seed, TASKS)
    with short_directory() as home:
        state = home / "state"
        prepare(state, home, layout, asked.seed)
        with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
            known = catalog.snapshot()
        for number, name in enumerate(NAMES):
            profile = next(p for p in known.profiles if p.task == f"task-{number:03}")
            print(f"{name}: {profile.memory_mib:.0f} MiB, {profile.load_s:.2f} s to load")
        print("| rule | loads | s by profiles | s by the clock | in time | COLD | others |")
        print("|---|--:|--:|--:|--:|--:|---|", flush=True)
        bodies = {name: requests(name) for name in NAMES}
        for rule in asked.rules.split(","):
            copy = home / "s"
            shutil.copytree(state, copy, ignore=shutil.ignore_patterns("run"))
            settings = {"slices": layout, "eviction": rule}
            with deployed(copy, start_s=START_S, **settings) as running:
                sent = []
                for number, one in enumerate(queries):
                    lengths, body = bodies[NAMES[one.task % len(NAMES)]][number % ROWS]
                    head = (
                        b"POST /v2/models/task-%03d/infer HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
                        b"content-type: application/octet-stream\r\n" % (one.task, running.port)
                    )
                    sent.append(Asked(one.at_s, {}, head + lengths + body))
                found, _ = played(running, sent)
            shutil.rmtree(copy)
            others = ", ".join(f"{name} {count}" for name, count in sorted(found.others.items()))
            took_s = f"{found.took_s:.1f}" if found.took_s is not None else ""
            print(
                f"| {rule} | {found.loads} | {found.profiled_s:.1f} | {took_s} "
                f"| {found.in_time} | {found.cold} | {others} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
