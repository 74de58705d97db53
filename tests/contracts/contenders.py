"""Every runtime in every precision, over one network: what the suite runs over."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np
import pytest

from tests.contracts.network import (
    INPUT,
    OUTPUT,
    Array,
    images,
    reference,
    write_archive,
    write_onnx,
)
from tests.machine_cache import compiled_folder
from tests.services import missing
from tests.workers.builders import onnx_spec
from variants.builders.protocol import Material, Needs
from variants.builders.registry import make_builder, missing_here
from variants.errors import RuntimeFailed
from workers.runtimes.protocol import Runtime
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

KINDS = (
    "onnx-fp32", "onnx-fp16", "onnx-int8",
    "openvino-fp32", "openvino-bf16", "openvino-fp16", "openvino-int8",
    "torch-fp32", "torch-bf16", "torch-fp16", "torch-fp32-compiled",
    "echo",
)  # fmt: skip
TOLERANCE = {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.5e-2, "int8": 3e-2, "echo": 0.0}
"""Largest error of a score as a part of the largest score. Half of the last bit is 6e-8 of a number
in fp32, 5e-4 in fp16, 4e-3 in bf16; int8 has 256 steps, chosen by calibration rows."""
_PACKAGES = {"openvino": "openvino", "torch": "torch"}
_EMULATED = ("torch-bf16", "torch-fp16")
"""PyTorch computes in 16 bits on every processor, however slowly."""


@dataclass(frozen=True)
class Contender:
    """A variant of the network, and what it has to answer."""

    kind: str
    spec: LoadSpec
    answers: Callable[[Array], Array]
    tolerance: float

    def check(self, found: Array, rows: Array) -> None:
        """The scores are those of the network, as far as the precision allows."""
        wanted = self.answers(rows)
        largest = float(np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, atol=self.tolerance * largest, rtol=0)


class Workshop:
    """Builds contenders, each once, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Contender] = {}

    def contender(self, kind: str) -> Contender:
        """The variant of a kind; the test is skipped where it cannot run."""
        if kind not in self._made:
            self._made[kind] = self._echo() if kind == "echo" else self._build(kind)
        return self._made[kind]

    @contextmanager
    def compiling_ahead(self, kinds: Collection[str]) -> Iterator[None]:
        """Compile those of the kinds that are, while other tests run: it takes 20 s.

        What this machine has compiled before by the same code is kept.
        """
        threads = []
        for kind in sorted(kind for kind in kinds if kind.endswith("-compiled")):
            if missing_here(kind) is None:
                runtime = make_runtime(self.contender(kind).spec, 1)
                threads.append(Thread(target=_load_and_close, args=(runtime,)))
                threads[-1].start()
        yield
        for thread in threads:
            thread.join()

    @cached_property
    def _source(self) -> Path:
        return write_onnx(self._folder / "network.onnx")

    @cached_property
    def _program(self) -> Path:
        return write_archive(self._folder / "network.pt2")

    def _build(self, kind: str) -> Contender:
        builder = make_builder(kind)
        need(kind)
        artifact = self._folder / f"{kind}{builder.suffix}"
        material = Material(
            source=self._source,
            program=self._program if Needs.PROGRAM in builder.needs else None,
            calibration={INPUT.name: images(128, seed=7)},
        )
        builder.build(material, artifact)
        options = {**builder.options, "engines": str(compiled_folder())}
        spec = self._spec(builder.runtime, artifact, options)
        tolerance = TOLERANCE[builder.precision]
        return Contender(kind=kind, spec=spec, answers=reference, tolerance=tolerance)

    def _echo(self) -> Contender:
        def echoed(rows: Array) -> Array:
            return rows.reshape(len(rows), -1)[:, : OUTPUT.shape[0]]

        spec = self._spec("echo", Path(), {})
        return Contender(kind="echo", spec=spec, answers=echoed, tolerance=TOLERANCE["echo"])

    def _spec(self, runtime: str, artifact: Path, options: dict[str, str]) -> LoadSpec:
        made = onnx_spec(artifact, options=tuple(sorted(options.items())))
        return replace(made, runtime=runtime, inputs=(INPUT,), outputs=(OUTPUT,))


def compile_all() -> None:
    """Compile what is compiled, ahead of the tests."""
    with TemporaryDirectory() as folder, Workshop(Path(folder)).compiling_ahead(KINDS):
        pass


def _load_and_close(runtime: Runtime) -> None:
    with suppress(RuntimeFailed):  # the tests will see it
        runtime.load()
    runtime.close()


def need(kind: str) -> None:
    """Skip the test where a kind cannot run.

    A package that is not installed fails the test with ``CI=true``; a processor without an
    arithmetic never does.
    """
    builder = make_builder(kind)
    package = _PACKAGES.get(builder.runtime)
    if package is not None and find_spec(package) is None and not builder.gpu:
        missing(package)
    why = missing_here(kind)
    if why and not kind.startswith(_EMULATED):
        pytest.skip(f"{kind}: {why}")
