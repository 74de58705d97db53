"""A runtime and a builder from a package outside of this project, found by their entry points."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from controlplane.load_specs import Specs
from controlplane.profiling.due.staleness import host_of
from tests.controlplane.registry.house import CPU, House
from tests.workers.builders import ask, config, connect, process
from variants import entry_points
from variants.builders.registry import BUILDERS, make_builder
from variants.errors import VariantNotBuilt
from workers.runtimes.registry import RUNTIMES
from workers.types import ReplyCode

PACKAGE = '''
"""A runtime that multiplies with numpy and softens: what ``tests.onnx_models`` computes."""

from pathlib import Path

import numpy as np

from variants.builders.protocol import Built
from variants.types import Precision


class AbacusRuntime:
    def __init__(self, spec, threads):
        self._spec = spec

    def load(self):
        self._weight = np.load(self._spec.path)

    def run(self, inputs):
        powers = np.exp(inputs[0] @ self._weight)
        return [powers / powers.sum(axis=1, keepdims=True)]

    def close(self):
        pass


class AbacusBuilder:
    runtime = "abacus"
    precision = Precision.FP32
    options = {}
    suffix = ".npy"
    gpu = False
    needs = frozenset()

    def missing(self):
        return None

    def build(self, material, target):
        import onnx

        (weight,) = onnx.load(str(material.source)).graph.initializer
        np.save(target, onnx.numpy_helper.to_array(weight))
        return Built(note="its weights alone")
'''
ENTRY_POINTS = """
[modelless.runtimes]
abacus = abacus:AbacusRuntime
onnx = abacus:AbacusRuntime

[modelless.builders]
abacus-fp32 = abacus:AbacusBuilder
torn-fp32 = torn:Builder
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package ``abacus`` 1.5, as ``pip`` leaves it, in a folder that Python searches."""
    packages = tmp_path / "packages"
    about = packages / "abacus-1.5.dist-info"
    about.mkdir(parents=True)
    (packages / "abacus.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: abacus\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    importlib.invalidate_caches()
    entry_points.added.cache_clear()
    yield
    entry_points.added.cache_clear()


@pytest.mark.usefixtures("installed")
async def test_a_variant_of_it_is_measured_and_answers(tmp_path: Path) -> None:
    (folder := tmp_path / "house").mkdir()
    house = House(folder)
    result = house.register(kinds=("abacus-fp32",))

    assert result.skipped == ()
    snapshot = house.catalog.snapshot()
    variant = next(v for v in snapshot.variants if v.name == "tiny-v1-abacus-fp32")
    assert (variant.runtime, variant.note) == ("abacus", "its weights alone")
    assert (variant.accuracy, variant.accuracy_rows) == (1.0, 24)
    profile = next(p for p in snapshot.profiles if p.variant == variant.name)
    assert [point.batch_size for point in profile.points] == [1, 2, 4]
    assert profile.host == host_of(variant)
    assert profile.host.endswith("; abacus 1.5")

    spec = Specs(snapshot, house.store).of("shapes", variant.name, CPU.name)
    (run_dir := tmp_path / "run").mkdir()
    worker = config(run_dir)
    async with process(worker) as (_, address):
        connection = await connect(address, worker)
        await connection.load(spec, 20.0)
        rows = np.array([[0, 0, 9, 0]], dtype=np.float32)
        reply = await ask(connection, spec, [rows], budget_ms=5_000.0)
        connection.close()
    assert reply.code is ReplyCode.OK
    assert reply.outputs[0].argmax() == 2


@pytest.mark.usefixtures("installed")
def test_a_package_adds_names_and_takes_none() -> None:
    assert "abacus" in RUNTIMES
    assert RUNTIMES["onnx"].target == "workers.runtimes.onnx:OnnxRuntime"
    assert [*RUNTIMES].count("onnx") == 1
    assert next(iter(BUILDERS)) == "onnx-fp32"


@pytest.mark.usefixtures("installed")
def test_a_package_that_cannot_be_imported_is_named_when_it_is_asked_for() -> None:
    assert "torn-fp32" in BUILDERS
    with pytest.raises(VariantNotBuilt, match=r"'torn-fp32' is not installed here: .*'torn'"):
        make_builder("torn-fp32")
