"""Two kinds of device on one machine of which one is four times as slow: a runtime says so.

The runtime is a package of its own, found by its entry point, as anybody's may be. It runs every
batch four times where the device kind's name ends in ``-slow``, in workers and where variants are
measured; what is ``parallel`` takes twice as long on one thread as on two. A batch takes
its time by waiting, so that no processor has to be free for it.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings import load_settings
from tests.integration.deployment import Deployment, deployed, short_directory
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.types import (
    ModelName,
    ModelVersion,
    Precision,
    Registration,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantName,
)

SLICES = "1xcpu-1,1xcpu-1-slow"
TIMES = 4
"""How often the slow kind runs every batch."""
WIDTH = 4
PACKAGE = f'''
"""Runs every batch {TIMES} times where the device is slow."""

from workers.runtimes.echo import EchoRuntime


class UnevenRuntime(EchoRuntime):
    def __init__(self, spec, threads):
        super().__init__(spec, threads)
        self._times = {TIMES} if spec.device_kind.endswith("-slow") else 1
        if dict(spec.options).get("parallel") and threads == 1:
            self._times *= 2

    def run(self, inputs):
        for _ in range(self._times):
            outputs = super().run(inputs)
        return outputs
'''
ENTRY_POINTS = "[modelless.runtimes]\nuneven = uneven:UnevenRuntime\n"


@contextmanager
def installed(folder: Path) -> Iterator[Path]:
    """The package, as ``pip`` leaves it; the folder to put on ``PYTHONPATH``."""
    packages = folder / "packages"
    about = packages / "uneven-1.0.dist-info"
    about.mkdir(parents=True)
    (packages / "uneven.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: uneven\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    yield packages
    shutil.rmtree(packages)


@contextmanager
def started(register_all: Callable[[Path], None], **options: Any) -> Iterator[Deployment]:
    """A deployment with that runtime and the tasks that ``register_all`` puts into its state
    directory; ``options`` are those of ``deployed``."""
    with (
        short_directory() as home,
        installed(home) as packages,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", str(packages))
        (home / "s").mkdir()
        register_all(home / "s")
        with deployed(home / "s", **options) as deployment:
            yield deployment


def register(
    state_dir: Path,
    task: str,
    variants: Mapping[str, tuple[float, float, float]],
    runtime: str = "uneven",
    **options: str,
) -> None:
    """Register a task of which nothing is measured yet: `up` does that on each kind.

    ``variants`` are models by name, with their accuracy, and ms of a batch and of each row. The
    runtime ``echo`` takes the same time on each kind.
    """
    settings = load_settings(state_dir=state_dir)
    store = FileArtifactStore(settings.artifacts_dir)
    asked = Task(
        name=TaskName(task),
        inputs=(TensorSpec(name="x", dtype="float32", shape=(WIDTH,)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(WIDTH,)),),
    )
    with closing(open_catalog(settings.catalog_url)) as catalog:
        for model, (accuracy, batch_ms, row_ms) in variants.items():
            source = state_dir / f"{task}-{model}.txt"
            source.write_text(f"{task} {model}")
            artifact = store.put(source)
            version = ModelVersion(
                task=asked.name,
                model=ModelName(model),
                version=1,
                stage=Stage.LIVE,
                source=artifact,
            )
            variant = Variant(
                task=asked.name,
                name=VariantName(f"{model}-v1-{runtime}-fp32"),
                model=version.model,
                version=1,
                runtime=runtime,
                precision=Precision.FP32,
                artifact=artifact,
                size_bytes=source.stat().st_size,
                accuracy=accuracy,
                accuracy_rows=1_000,
                options={
                    "latency_ms": f"{batch_ms}",
                    "latency_ms_per_row": f"{row_ms}",
                    **options,
                },
            )
            catalog.register(
                Registration(task=asked, version=version, variants=(variant,), profiles=())
            )
