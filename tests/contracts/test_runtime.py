"""What every runtime keeps, run over all that need no accelerator."""

from pathlib import Path

import numpy as np
import pytest

from tests.workers.builders import WIDTH, double_model, echo_spec, onnx_spec
from variants.errors import RuntimeFailed
from workers.runtime import Runtime, make_runtime
from workers.types import LoadSpec


@pytest.fixture(params=["onnx", "echo"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> LoadSpec:
    if request.param == "onnx":
        return onnx_spec(double_model(tmp_path / "double.onnx"))
    return echo_spec(options={"latency_ms": "1"})


@pytest.fixture
def runtime(spec: LoadSpec) -> Runtime:
    made = make_runtime(spec, 1)
    made.load()
    return made


def rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.arange(count * WIDTH, dtype=np.float32).reshape(count, WIDTH)


def test_outputs_have_as_many_rows_and_the_task_s_shape_and_type(runtime: Runtime) -> None:
    (output,) = runtime.run([rows(3)])
    assert (output.shape, str(output.dtype)) == ((3, WIDTH), "float32")


def test_a_row_of_a_batch_equals_a_batch_of_that_row(runtime: Runtime) -> None:
    batch = rows(5)
    (together,) = runtime.run([batch])
    alone = [runtime.run([batch[i : i + 1]])[0][0] for i in range(5)]
    np.testing.assert_array_equal(together, np.stack(alone))


def test_read_only_inputs_are_accepted(runtime: Runtime) -> None:
    batch = rows(2)
    batch.flags.writeable = False
    assert len(runtime.run([batch])[0]) == 2


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((1, WIDTH + 1), dtype=np.float32), np.zeros((1, WIDTH), dtype=np.int64)],
    ids=["shape", "type"],
)
def test_wrong_inputs_fail_and_the_next_batch_works(
    runtime: Runtime, wrong: np.ndarray[tuple[int, int], np.dtype[np.float32]]
) -> None:
    with pytest.raises(RuntimeFailed, match="task/v"):
        runtime.run([wrong])
    assert len(runtime.run([rows(1)])[0]) == 1


def test_closed_it_fails_and_loaded_again_it_works(runtime: Runtime) -> None:
    runtime.close()
    runtime.close()
    with pytest.raises(RuntimeFailed, match="not loaded"):
        runtime.run([rows(1)])
    runtime.load()
    assert len(runtime.run([rows(1)])[0]) == 1


def test_the_constructor_only_stores(tmp_path: Path) -> None:
    runtime = make_runtime(onnx_spec(tmp_path / "nothing.onnx"), 1)
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded"):
        runtime.load()


def test_an_unknown_runtime_is_named() -> None:
    from dataclasses import replace

    with pytest.raises(RuntimeFailed, match="runtime 'tea' is unknown; there are: echo, onnx"):
        make_runtime(replace(echo_spec(), runtime="tea"), 1)
