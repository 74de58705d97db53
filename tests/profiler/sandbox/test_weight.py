"""What a variant takes of the memory: activations once, of the batches that it serves."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.probe import Probe
from tests.profiler.sandbox.test_probe import spec

pytestmark = pytest.mark.slow

ROW_MIB = 1.0
"""What each of its four tensors of activations takes for a row."""

RUNS = """
import sys
import numpy as np
from profiler.sandbox.measure import resident_mib
from tests.profiler.sandbox.test_probe import spec
from workers.runtimes.registry import make_runtime
from pathlib import Path

runtime = make_runtime(spec(Path(sys.argv[1])), 1)
runtime.load()
before = resident_mib()
rows = np.ones((32, 4), dtype=np.float32)
for _ in range(3):
    runtime.run([rows])
    print(resident_mib() - before)
"""


TOGETHER = """
import sys
from dataclasses import replace
import numpy as np
from profiler.sandbox.measure import resident_mib
from tests.profiler.sandbox.test_probe import spec
from workers.runtimes.sharing.arena import ARENA
from workers.runtimes.registry import make_runtime
from pathlib import Path

ARENA.share()
told = spec(Path(sys.argv[1]))
variants = [make_runtime(replace(told, own_working_mib=mib), 1) for mib in (0.0, 0.0, 1.0)]
for one in variants:
    one.load()
before = resident_mib()
rows = [np.ones((size, 4), dtype=np.float32) for size in (64, 8, 33, 1)]
for one in variants:
    for batch in rows:
        one.run([batch])
    if one is variants[0]:
        print(resident_mib() - before)
print(resident_mib() - before)
for one in variants[1:]:
    one.close()
    variants[0].run([rows[-1]])
    print(resident_mib() - before)
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four numbers to three, by way of activations that are much larger than the weights."""
    width = 2**18
    draw = np.random.default_rng(0)
    weights = {
        "into": draw.random((4, width), dtype=np.float32),
        "out": draw.random((width, 3), dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["pixels", "into"], ["a"]),
        helper.make_node("Sin", ["a"], ["b"]),
        helper.make_node("Cos", ["a"], ["c"]),
        helper.make_node("Mul", ["b", "c"], ["d"]),
        helper.make_node("MatMul", ["d", "out"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path_factory.mktemp("wide") / "wide.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, pixels=np.ones((64, 4), dtype=np.float32), labels=np.zeros(64, dtype=np.int64))
    return path


def test_a_shape_that_comes_again_takes_no_more(wide: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUNS, str(wide)], check=True, capture_output=True, text=True
    )
    first, _, last = map(float, ran.stdout.split())
    assert first > 32 * ROW_MIB
    assert last < 1.1 * first + 2


def test_batches_that_are_not_served_do_not_count(wide: Path, rows: Path) -> None:
    limits = MeasureLimits(batch_sizes=(1, 4), point_s=0.01, min_runs=1, rounds=1)
    with Probe(spec(wide), threads=1, data=rows, limits=limits, memory_mib=2_000) as one:
        one.sample(64, seconds=0.001)
        one.judge()
        one.curve()
        seen_mib, weight = one.figures.memory_mib, one.weigh([4, 1])
        taken_mib, larger_mib = weight.memory_mib, one.weigh([1, 4, 16]).memory_mib
        assert one.sample(4, seconds=0.001).runs > 0  # it is loaded and may go on
    assert seen_mib > 64 * 2 * ROW_MIB
    assert 4 * 2 * ROW_MIB < taken_mib < seen_mib / 3
    assert taken_mib + 12 * 2 * ROW_MIB < larger_mib < seen_mib
    assert weight.working_mib is not None
    assert 3 * 2 * ROW_MIB < weight.working_mib < taken_mib


def test_what_openvino_gives_back_is_there_for_others(wide: Path, rows: Path) -> None:
    """Each of its variants kept what its largest batch took."""
    pytest.importorskip("openvino")
    limits = MeasureLimits(batch_sizes=(1, 64), point_s=0.01, min_runs=1, rounds=1)
    told = replace(spec(wide), runtime="openvino")
    with Probe(told, threads=1, data=rows, limits=limits, memory_mib=2_000) as one:
        weight = one.weigh([1, 64])
    assert weight.memory_mib > 64 * ROW_MIB
    assert weight.working_mib is not None
    assert weight.memory_mib - weight.working_mib < weight.memory_mib / 4


def test_variants_of_a_worker_use_the_same_working_memory(wide: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TOGETHER, str(wide)], check=True, capture_output=True, text=True
    )
    one, three, smaller, after = map(float, ran.stdout.split())
    assert one > 64 * 2 * ROW_MIB
    assert three < 1.2 * one
    # Closing one that needs no more than its share gives nothing back, closing a larger one does.
    assert smaller > 0.9 * one
    assert after < one / 3
