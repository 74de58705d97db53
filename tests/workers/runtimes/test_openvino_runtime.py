"""OpenVINO behind the runtime protocol: what it is told, and what it would do untold."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, save

from tests.onnx_models import model, node, tensor
from tests.services import missing
from tests.workers.builders import double_model, onnx_spec
from variants.builders.processor import missing_arithmetic
from variants.errors import RuntimeFailed
from variants.types import Precision, TensorSpec
from workers.runtimes.openvino import OpenVinoRuntime, _Holder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CODES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64,
    "int32": TensorProto.INT32, "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    if find_spec("openvino") is None:
        missing("openvino")


def loaded(path: Path, given: int = 1, **options: str) -> OpenVinoRuntime:
    runtime = OpenVinoRuntime(onnx_spec(path, options=tuple(options.items())), given)
    runtime.load()
    return runtime


def told(runtime: OpenVinoRuntime, name: str) -> Any:
    """A property as the compiled model has it."""
    return runtime._request.get_compiled_model().get_property(name)


class Counting:
    """A compiled model that counts how often its memory was given back."""

    def __init__(self, compiled: Any) -> None:
        self.compiled, self.times = compiled, 0

    def release_memory(self) -> None:
        self.times += 1
        self.compiled.release_memory()


@pytest.mark.parametrize(("long_s", "given_back"), [(0.0, [2, 1]), (60.0, [0, 0])])
def test_what_long_batches_take_is_given_back_when_another_variant_had_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long_s: float, given_back: list[int]
) -> None:
    monkeypatch.setattr("workers.runtimes.openvino._HOLDER", _Holder())
    monkeypatch.setattr("workers.runtimes.openvino.LONG_S", 60.0)
    both = [loaded(double_model(tmp_path / f"{name}.onnx")) for name in "ab"]
    counts = [Counting(one._compiled) for one in both]
    for one, count in zip(both, counts, strict=True):
        one._compiled = count
    monkeypatch.setattr("workers.runtimes.openvino.LONG_S", long_s)
    row = np.ones((3, 4), dtype=np.float32)
    for place in (0, 0, 1, 1, 0, 1):
        np.testing.assert_array_equal(both[place].run([row])[0], 2 * row)
    assert [count.times for count in counts] == given_back
    both[1].close()
    both[0].run([row])
    assert counts[1].times == given_back[1]


def test_fp32_is_computed_in_fp32_whatever_the_processor_prefers(tmp_path: Path) -> None:
    runtime = loaded(double_model(tmp_path / "double.onnx"))
    assert told(runtime, "INFERENCE_PRECISION_HINT").to_string() == "f32"


@pytest.mark.parametrize(("precision", "computes_in"), [("bf16", "bf16"), ("fp16", "f16")])
def test_sixteen_bits_are_computed_where_the_processor_can_and_refused_where_not(
    tmp_path: Path, precision: str, computes_in: str
) -> None:
    """Some processors without such instructions have OpenVINO compute as if they had: with bf16,
    those that have AVX-512. What no processor gets is another precision than it asked for."""
    refused = ""
    try:
        runtime = loaded(double_model(tmp_path / "double.onnx"), precision=precision)
    except RuntimeFailed as error:
        refused = str(error)
    if refused:
        assert missing_arithmetic(Precision(precision))
        assert f"task/v cannot be loaded: this CPU has no {precision}" in refused
    else:
        assert told(runtime, "INFERENCE_PRECISION_HINT").to_string() == computes_in


def test_it_shares_the_machine(tmp_path: Path) -> None:
    """One stream, no pinning, one thread where one is asked for."""
    runtime = loaded(double_model(tmp_path / "double.onnx"), 2, threads="1")
    has = {
        name: told(runtime, name)
        for name in (
            "NUM_STREAMS", "INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING", "ENABLE_CPU_RESERVATION",
        )
    }  # fmt: skip
    assert has == {
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": 1,
        "ENABLE_CPU_PINNING": False,
        "ENABLE_CPU_RESERVATION": False,
    }


@pytest.mark.parametrize(("name", "value"), [("precision", "fp8"), ("threads", "all")])
def test_an_option_that_it_does_not_know_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(RuntimeFailed, match=f"task/v has {name} '{value}'"):
        loaded(double_model(tmp_path / "double.onnx"), 1, **{name: value})


@pytest.mark.parametrize("dtype", CODES)
def test_every_type_of_a_task_comes_back_as_it_went_in(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1, 100]]).astype(dtype)
    (answer,) = passed_through(tmp_path, dtype).run([values])
    assert answer.dtype == values.dtype
    np.testing.assert_array_equal(answer, values)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62])
def test_integers_beyond_32_bits_are_refused_and_not_cut(tmp_path: Path, value: int) -> None:
    runtime = passed_through(tmp_path, "int64")
    with pytest.raises(RuntimeFailed, match="computes int64 in 32 bits"):
        runtime.run([np.array([[0, 1, value]])])
    kept = np.array([[0, 2**31 - 1, -(2**31)]])
    np.testing.assert_array_equal(runtime.run([kept])[0], kept)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
def test_what_follows_the_largest_along_an_axis_may_be_in_8_bits(
    tmp_path: Path, kind: str, keepdims: int
) -> None:
    """OpenVINO computed it as a part of that, and wrongly: by up to the answers themselves."""
    weight = np.random.default_rng(1).integers(-63, 64, (32, 6)).astype(np.int8)
    rows = np.random.default_rng(2).standard_normal((5, 20, 32)).astype(np.float32)
    one = (1,) * keepdims
    path = tmp_path / "extremes.onnx"
    save(
        model(
            inputs=[tensor("x", "batch", 20, 32)],
            outputs=[tensor("y", "batch", *one, 6), tensor("most", "batch", *one, 32)],
            nodes=[
                node(kind, ("x", "axis"), "most", keepdims=keepdims),
                node("QuantizeLinear", ("most", "scale", "zero"), "quantised"),
                node("DequantizeLinear", ("quantised", "scale", "zero"), "again"),
                node("DequantizeLinear", ("weight", "weight_scale", "weight_zero"), "wide"),
                node("MatMul", ("again", "wide"), "y"),
            ],
            weights={
                "scale": np.array(0.03, np.float32), "zero": np.array(120, np.uint8),
                "weight": weight, "weight_scale": np.array(0.004, np.float32),
                "weight_zero": np.array(0, np.int8), "axis": np.array([1]),
            },
        ),
        str(path),
    )  # fmt: skip
    runtime = OpenVinoRuntime(
        onnx_spec(
            path,
            inputs=(TensorSpec(name="x", dtype="float32", shape=(20, 32)),),
            outputs=(
                TensorSpec(name="y", dtype="float32", shape=(*one, 6)),
                TensorSpec(name="most", dtype="float32", shape=(*one, 32)),
            ),
        ),
        1,
    )
    runtime.load()
    y, most = runtime.run([rows])
    expected = getattr(rows, kind.removeprefix("Reduce").lower())(1, keepdims=bool(keepdims))
    quantised = np.clip(np.rint(expected / 0.03) + 120, 0, 255) - 120
    np.testing.assert_allclose(most, expected)
    np.testing.assert_allclose(y, (0.03 * quantised) @ (0.004 * weight), atol=1e-4)


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
def test_the_largest_along_the_last_axis_may_be_dropped(tmp_path: Path, kind: str) -> None:
    """Such as global pooling of a network of TensorFlow: it could not be loaded."""
    path = tmp_path / "extremes.onnx"
    nodes = [node(kind, ("x", "axis"), "y", keepdims=0)]
    inputs, outputs = [tensor("x", "batch", 3, 4)], [tensor("y", "batch", 3)]
    save(model(inputs=inputs, outputs=outputs, nodes=nodes, weights={"axis": np.array([2])}), path)
    runtime = OpenVinoRuntime(
        onnx_spec(
            path,
            inputs=(TensorSpec(name="x", dtype="float32", shape=(3, 4)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=(3,)),),
        ),
        1,
    )
    runtime.load()
    rows = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (y,) = runtime.run([rows])
    np.testing.assert_array_equal(y, getattr(rows, kind.removeprefix("Reduce").lower())(2))


def test_only_onnx_is_read(tmp_path: Path) -> None:
    """Not what its other readers would take: this is a model in its own format."""
    other = tmp_path / "model.xml"
    other.write_text('<?xml version="1.0"?><net name="n" version="11"><layers/><edges/></net>')
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded"):
        loaded(other)


def test_nothing_is_sent_home(tmp_path: Path) -> None:
    """Left alone, importing OpenVINO forks the process and posts to Google Analytics from there."""
    double_model(tmp_path / "double.onnx")
    code = """
import sys
from pathlib import Path
from tests.workers.builders import onnx_spec
from workers.runtimes.openvino import OpenVinoRuntime, _Holder

seen = []
ours = ("socket.", "os.fork", "subprocess.", "urllib.")
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(ours) else None)
OpenVinoRuntime(onnx_spec(Path(sys.argv[1])), 1).load()
print(seen, [name for name in sys.modules if name.startswith("openvino_telemetry.")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "double.onnx")],
        capture_output=True, text=True, check=True, cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.strip() == "[] []"
    assert [path.name for path in tmp_path.iterdir()] == ["double.onnx"]


def passed_through(folder: Path, dtype: str) -> OpenVinoRuntime:
    """A loaded model that gives its input."""
    x, y = (tensor(name, "batch", 3, kind=CODES[dtype]) for name in "xy")
    path = folder / "identity.onnx"
    save(
        model(nodes=[node("Identity", ["x"], "y")], inputs=[x], outputs=[y], weights={}), str(path)
    )
    specs = [TensorSpec(name=name, dtype=dtype, shape=(3,)) for name in "xy"]
    runtime = OpenVinoRuntime(onnx_spec(path, inputs=(specs[0],), outputs=(specs[1],)), 1)
    runtime.load()
    return runtime
