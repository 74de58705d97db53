"""PyTorch behind the runtime protocol: names, types, threads, and what a program may not do."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.workers.builders import onnx_spec
from tests.workers.runtimes.archives import save_archive
from variants.errors import RuntimeFailed
from variants.types import TensorSpec
from workers.runtimes.pytorch.runtime import TorchRuntime
from workers.types import LoadSpec

pytestmark = pytest.mark.slow


class Two(nn.Module):  # type: ignore[misc]
    """Two inputs and two outputs of different types; neither commutes."""

    def forward(self, x: Any, n: Any) -> Any:
        return x - n.to(x.dtype), (x > n).sum(1, keepdim=True)


class Alias(nn.Module):  # type: ignore[misc]
    """Gives a view of its input, and its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(4.0))

    def forward(self, x: Any) -> Any:
        return x.view(-1, 4), self.weight.expand(x.shape[0], 4)


class InPlace(nn.Module):  # type: ignore[misc]
    """Writes into its input."""

    def forward(self, x: Any) -> Any:
        return x.mul_(2)


class Transposed(nn.Module):  # type: ignore[misc]
    """Gives a tensor that lies in memory by columns."""

    def forward(self, x: Any) -> Any:
        return (x * 2).view(-1, 2, 2).transpose(1, 2)


def spec(
    path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], **options: str
) -> LoadSpec:
    made = onnx_spec(path, inputs=tuple(inputs), outputs=tuple(outputs))
    return replace(made, runtime="torch", options=tuple(options.items()))


def loaded(told: LoadSpec, threads: int = 1) -> TorchRuntime:
    runtime = TorchRuntime(told, threads)
    runtime.load()
    return runtime


def of(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


X, Y = of("x", 4), of("y", 4)
TWO = ([X, of("n", 4, dtype="int64")], [of("rest", 4), of("count", 1, dtype="int64")])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("archives")

    def save(
        module: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], says: bool = True
    ) -> Path:
        path = folder / f"{type(module).__name__}-{says}.pt2"
        return path if path.exists() else save_archive(path, module, inputs, outputs, says=says)

    return save


def two_rows() -> tuple[Any, Any]:
    return (
        np.array([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=np.float32),
        np.array([[0, 0, 9, 9], [1, 1, 1, 1]]),
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_tensors_go_where_their_names_say_and_keep_their_types(
    archive: Callable[..., Path], precision: str
) -> None:
    path = archive(Two(), *TWO)
    x, n = two_rows()
    wanted = [np.array([[1, 2, -6, -5], [4, 5, 6, 7]], np.float32), np.array([[2], [4]])]
    straight = loaded(spec(path, *TWO, precision=precision))
    turned = loaded(spec(path, TWO[0][::-1], TWO[1][::-1], precision=precision))
    for found, want in zip(straight.run([x, n]), wanted, strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)
    for found, want in zip(turned.run([n, x]), wanted[::-1], strict=True):
        np.testing.assert_array_equal(found, want)


def test_without_names_tensors_go_by_position(archive: Callable[..., Path]) -> None:
    x, n = two_rows()
    rest, count = loaded(spec(archive(Two(), *TWO, says=False), *TWO)).run([x, n])
    assert (rest[0].tolist(), count.tolist()) == ([1, 2, -6, -5], [[2], [4]])


def test_outputs_that_nobody_asks_for_are_left_out(archive: Callable[..., Path]) -> None:
    path = archive(Two(), *TWO)
    (count,) = loaded(spec(path, TWO[0], TWO[1][1:])).run(list(two_rows()))
    assert count.tolist() == [[2], [4]]


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        (TWO[0][:1], TWO[1], "it has no n; there are: x"),
        (TWO[0], [of("scores", 4)], "it has no scores; there are: rest, count"),
        (TWO[0], [of("rest", 4), of("count", 1)], "gives count as torch.int64, .* has float32"),
        (TWO[0], [of("rest", 3), TWO[1][1]], "gives .* for one row, the task has"),
    ],
)
def test_a_signature_that_is_not_the_program_s_is_refused(
    archive: Callable[..., Path],
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    says: str,
) -> None:
    with pytest.raises(RuntimeFailed, match=f"^task/v cannot be loaded: .*{says}"):
        loaded(spec(archive(Two(), *TWO), inputs, outputs))


def test_outputs_are_no_views_of_inputs_or_weights(archive: Callable[..., Path]) -> None:
    path = archive(Alias(), [X], [Y, of("weight", 4)])
    runtime = loaded(spec(path, [X], [Y, of("weight", 4)]))
    rows = np.ones((2, 4), dtype=np.float32)
    for output in runtime.run([rows]):
        output[:] = 7
    same, weight = runtime.run([rows])
    assert (same.tolist(), weight[1].tolist()) == ([[1.0] * 4] * 2, [0.0, 1.0, 2.0, 3.0])


def test_a_program_that_writes_into_its_input_is_refused(archive: Callable[..., Path]) -> None:
    with pytest.raises(RuntimeFailed, match="a user_input_mutation: it would change itself"):
        loaded(spec(archive(InPlace(), [X], [Y]), [X], [Y]))


def test_outputs_lie_in_memory_by_rows(archive: Callable[..., Path]) -> None:
    output = of("y", 2, 2)
    (found,) = loaded(spec(archive(Transposed(), [X], [output]), [X], [output])).run(
        [np.array([[0, 1, 2, 3]], dtype=np.float32)]
    )
    assert found.flags.c_contiguous
    assert found.tolist() == [[[0, 4], [2, 6]]]


def test_each_variant_computes_with_its_own_threads_wherever_it_runs(
    archive: Callable[..., Path],
) -> None:
    """The number is kept for each thread; batches of a worker run on two of them."""
    path = archive(Transposed(), [X], [of("y", 2, 2)])
    one, two = (
        loaded(spec(path, [X], [of("y", 2, 2)], threads=threads), 4) for threads in ("1", "2")
    )
    rows = np.ones((1, 4), dtype=np.float32)
    seen: list[int] = []

    def take_turns() -> None:
        for runtime in (one, two, one):
            runtime.run([rows])
            seen.append(torch.get_num_threads())

    take_turns()
    thread = Thread(target=take_turns)
    thread.start()
    thread.join()
    assert seen == [1, 2, 1, 1, 2, 1]


def test_read_only_arrays_are_taken_without_a_warning(archive: Callable[..., Path]) -> None:
    runtime = loaded(spec(archive(Alias(), [X], [Y, of("weight", 4)]), [X], [Y]))
    rows = np.ones((1, 4), dtype=np.float32)
    rows.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runtime.run([rows])


@pytest.mark.parametrize(
    ("name", "value"), [("precision", "int8"), ("compiled", "yes"), ("provider", "tpu")]
)
def test_an_option_that_it_does_not_know_is_refused(
    archive: Callable[..., Path], name: str, value: str
) -> None:
    path = archive(InPlace(), [X], [Y])
    with pytest.raises(RuntimeFailed, match=f"task/v (cannot be loaded: )?has {name} '{value}'"):
        loaded(spec(path, [X], [Y], **{name: value}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_a_variant_for_one_is_refused(archive: Callable[..., Path]) -> None:
    path = archive(InPlace(), [X], [Y])
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded: it needs a GPU, and"):
        loaded(spec(path, [X], [Y], provider="cuda"))


def test_its_library_is_opened_before_it_is_imported_and_threads_do_not_spin_for_long() -> None:
    """In a process of its own: here torch has been imported long ago."""
    code = """
import os, sys
from pathlib import Path
from workers.runtimes.pytorch import runtime
runtime._open_library()
assert "torch" not in sys.modules
assert runtime.LIBRARY in Path("/proc/self/maps").read_text()
torch = runtime.import_torch()
assert os.environ["GOMP_SPINCOUNT"] == str(runtime.SPINS)
print(float(torch.ones(3).sum()))
"""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("OMP_", "GOMP_"))}
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=kept
    )
    assert answer.stdout == "3.0\n"


def test_how_threads_wait_is_left_to_who_says_so() -> None:
    code = """
import os
from workers.runtimes.pytorch import runtime
runtime.import_torch()
print(os.environ.get("GOMP_SPINCOUNT"))
"""
    told = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    told.pop("GOMP_SPINCOUNT", None)
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=told
    )
    assert answer.stdout == "None\n"
