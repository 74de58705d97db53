"""Reading bodies: the ordinary way beside the lean one, in processor time.

Run with ``python -m tests.bench.serving.reading`` from the repository's root; it takes half a
minute. Both ways read the same bodies in turn; shown is the lower quartile of 25 rounds.
"""

import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.v2.datatypes import V2_NAMES
from controlplane.gateway.query.v2.parsing import parse_v2
from variants.types import Slo, Task, TaskName, TensorSpec

SHAPES = ((8,), (64,), (256,), (28, 28), (3, 32, 32), (3, 64, 64))
ROUNDS = 25
IN_A_ROUND = 20
ALWAYS, NEVER = 0, 2**40


def quartiles_us(*works: Callable[[], object]) -> list[float]:
    """What each takes, of calls that alternate."""
    took: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, found in zip(works, took, strict=True):
            began_s = time.thread_time()
            for _ in range(IN_A_ROUND):
                work()
            found.append((time.thread_time() - began_s) / IN_A_ROUND)
    return [sorted(found)[ROUNDS // 4] * 1e6 for found in took]


def bodies(shape: tuple[int, ...], dtype: str, whole: bool) -> tuple[Task, bytes, bytes]:
    """A task, and one row for it in both dialects: nested, and as a flat list."""
    draw = np.random.default_rng(0)
    row = draw.integers(0, 255, (1, *shape)) if whole else draw.random((1, *shape)).round(6)
    task = Task(
        name=TaskName("numbers"),
        inputs=(TensorSpec(name="x", dtype=dtype, shape=shape),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(2,)),),
        slo=Slo(latency_ms=100.0),
    )
    entry = {"name": "x", "datatype": V2_NAMES[dtype], "shape": [1, *shape]}
    v2 = {"inputs": [{**entry, "data": row.reshape(-1).tolist()}]}
    v1 = {"task": task.name, "inputs": row.tolist()}
    return task, json.dumps(v1).encode(), json.dumps(v2).encode()


def main() -> None:
    print("| type | numbers | bytes | v1 ordinary, µs | lean | v2 ordinary, µs | lean |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for dtype, whole in (("float32", False), ("float32", True), ("uint8", True)):
        for shape in SHAPES:
            task, v1, v2 = bodies(shape, dtype, whole)
            tasks = {task.name: task}
            works = [
                read
                for least in (NEVER, ALWAYS)
                for read in (
                    partial(parse_v1, v1, tasks, 0.0, 0, least),
                    partial(parse_v2, v2, task.name, None, tasks, 0.0, 0, None, least),
                )
            ]
            one, two, lean_one, lean_two = quartiles_us(*works)
            print(
                f"| {dtype}, {'whole' if whole else 'six digits'} | {np.prod(shape):,} |"
                f" {len(v1):,} | {one:.0f} | {lean_one:.0f} | {two:.0f} | {lean_two:.0f} |"
            )


if __name__ == "__main__":
    main()
