"""How long a thread that waits for the next operator should spin before it sleeps.

Run with ``python -m tests.bench.profiling.spinning`` from the repository's root. Two threads
compute batches of three of the digits family, in ONNX Runtime and in PyTorch, each way in a process
of its own, in turns; one thread that has nobody to wait for stands beside them. Each cell is the
median batch in ms and, in brackets, what the process used of its processors for a batch, spinning
after its end included: every fifth batch is followed by 2 ms of rest.

Each thread is kept on a core of its own: some kernels of virtual machines pack threads that rest
now and then onto one core, which doubles the time of every other batch and hides all else.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

from tests.bench import machine
from tests.machine_cache import digits_folder

MODELS = ("mlp", "cnn-small", "cnn")
SIZES = (1, 2, 8, 32)
ONNX_US = ("0", "50", "100", "300", "1000")
TORCH_SPINS = ("0", "20000", "50000", "100000", "300000")
"""The last is libgomp's own choice."""
ONE = "one thread"
ROUNDS = 3
SECONDS = 0.15

Cells = dict[str, tuple[float, float]]


def onnx_calls(spin: str) -> dict[str, Callable[[int], Callable[[], Any]]]:
    import onnxruntime as ort

    def of(name: str) -> Callable[[int], Callable[[], Any]]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1 if spin == ONE else 2
        if spin != ONE:
            options.add_session_config_entry("session.intra_op_thread_affinities", "2")
        if spin not in ("0", ONE):
            options.add_session_config_entry("session.intra_op.spin_duration_us", spin)
        else:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = next((digits_folder() / name).rglob("*.onnx"))
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        os.sched_setaffinity(0, {0})
        return lambda rows: lambda: session.run(None, {session.get_inputs()[0].name: _rows(rows)})

    return {name: of(name) for name in MODELS}


def torch_calls(spin: str) -> dict[str, Callable[[int], Callable[[], Any]]]:
    os.environ |= {"GOMP_SPINCOUNT": "0" if spin == ONE else spin, "GOMP_CPU_AFFINITY": "0 1"}
    import torch

    from variants.zoo import digits_models

    torch.set_num_threads(1 if spin == ONE else 2)
    torch.set_grad_enabled(False)

    def of(name: str) -> Callable[[int], Callable[[], Any]]:
        recipe = next(each for each in digits_models.RECIPES if each.name == name)
        module = recipe.build().eval()
        return lambda rows: lambda: module(torch.from_numpy(_rows(rows)))

    return {name: of(name) for name in MODELS}


CALLS = {"onnx": onnx_calls, "torch": torch_calls}


def _rows(count: int) -> Any:
    return np.full((count, 64), 8, dtype=np.float32)


def child(runtime: str, spin: str) -> Cells:
    found = {}
    for name, sized in CALLS[runtime](spin).items():
        for rows in SIZES:
            call = sized(rows)
            for _ in range(10):
                call()
            times: list[float] = []
            used_s, began_s = -time.process_time(), time.perf_counter()
            while time.perf_counter() - began_s < SECONDS:
                at_s = time.perf_counter()
                call()
                times.append(time.perf_counter() - at_s)
                if len(times) % 5 == 0:
                    time.sleep(0.002)
            used_s += time.process_time()
            found[f"{name} x{rows}"] = (1000 * median(times), 1000 * used_s / len(times))
    return found


def run(runtime: str, ways: tuple[str, ...]) -> None:
    seen: dict[str, list[Mapping[str, tuple[float, float]]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            command = [
                sys.executable,
                "-m",
                "tests.bench.profiling.spinning",
                "--child",
                runtime,
                way,
            ]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            seen[way].append(json.loads(answer.stdout.splitlines()[-1]))
    print(f"\n{runtime:14}" + "".join(f"{way:>16}" for way in ways))
    for cell in seen[ways[0]][0]:
        line = f"{cell:14}"
        for way in ways:
            wall, used = (median(one[cell][i] for one in seen[way]) for i in (0, 1))
            line += f"{f'{wall:.3f} ({used:.2f})':>16}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return
    print(machine.describe())
    with machine.Others() as others:
        run("onnx", (*ONNX_US, ONE))
        run("torch", (*TORCH_SPINS, ONE))
    if others.cores > machine.IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
