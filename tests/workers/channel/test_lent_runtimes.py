"""Lent tensors in runtimes: real ones, one that writes to its input, and one that keeps it."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.services import SHARED_MEMORY
from tests.workers.builders import ask, config, digest_of, double_model, onnx_spec, running, tensor
from tests.workers.channel.test_lending import WIDE, lend, wide, wide_spec
from variants.registry import Entry
from workers.channel.shared_memory import LentBlock
from workers.runtimes.echo import EchoRuntime
from workers.runtimes.protocol import Tensor
from workers.runtimes.registry import RUNTIMES
from workers.types import LoadSpec

pytestmark = SHARED_MEMORY


class Overwriting(EchoRuntime):
    """Doubles its input where it lies, as in-place operators of native code do."""

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        given = inputs[0]
        there = (ctypes.c_float * given.size).from_address(given.ctypes.data)
        np.ctypeslib.as_array(there)[...] *= 2
        return super().run(inputs)


class Remembering(EchoRuntime):
    """Gives the same outputs again where the input is the same as before, and doubles others."""

    keeps_inputs = True
    last: tuple[Tensor, list[Tensor]] | None = None

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if self.last is not None and np.array_equal(self.last[0], inputs[0]):
            return self.last[1]
        self.last = inputs[0], [2 * one for one in super().run(inputs)]
        return self.last[1]


class Silent(Remembering):
    """The same of a package that says nothing of its inputs."""

    keeps_inputs = None  # type: ignore[assignment]


@pytest.fixture
def own_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtimes of this file, as those of a package."""
    added = {
        one.__name__.lower(): Entry(target=f"{__name__}:{one.__name__}", about="of a test")
        for one in (Overwriting, Remembering, Silent)
    }
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", {**RUNTIMES, **added})


def identity_model(path: Path) -> Path:
    """An ONNX file whose output is its input."""
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDE])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


async def answers_are_right(folder: Path, spec: LoadSpec, factor: int) -> None:
    """Lend queries one by one, which come to lie where the one before did, and compare."""
    async with running(config(folder)) as (_, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        begins = places(block)
        for value in range(1, 6):
            reply = await ask(connection, spec, wide(value))
            np.testing.assert_array_equal(reply.outputs[0], factor * wide(value)[0])
        assert begins == [0] * 5
        assert block.taken == 0


def places(block: LentBlock) -> list[int | None]:
    """Where what is lent from now on begins."""
    begins: list[int | None] = []
    lend_it = block.lend

    def lend_and_note(*arguments: object) -> int | None:
        begins.append(lend_it(*arguments))  # type: ignore[arg-type]
        return begins[-1]

    block.lend = lend_and_note  # type: ignore[method-assign, assignment]
    return begins


@pytest.mark.parametrize("model", ["double", "identity"])
async def test_onnx_runtime_computes_lent_queries(model: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = identity_model(path) if model == "identity" else double_model(path, width=WIDE)
    ports = {"inputs": (tensor("x", WIDE),), "outputs": (tensor("y", WIDE),)}
    spec = replace(onnx_spec(made, artifact=digest_of(made)), **ports)  # type: ignore[arg-type]
    await answers_are_right(tmp_path, spec, 2 if model == "double" else 1)


@pytest.mark.parametrize("runtime", ["overwriting", "remembering", "silent"])
@pytest.mark.usefixtures("own_runtimes")
async def test_runtimes_that_write_to_inputs_or_keep_them_answer_rightly(
    runtime: str, tmp_path: Path
) -> None:
    await answers_are_right(tmp_path, wide_spec(runtime=runtime), 2)
