"""Models for the trials: they echo, take their time by waiting, and fall ill while a file is there.

Their runtime is a package of its own, found by its entry point as anybody's may be.
"""

from pathlib import Path

from tests.integration import uneven

TASKS = {
    "first": {"small": (0.80, 2.0, 3.0), "large": (0.90, 4.0, 8.0)},
    "second": {"small": (0.82, 3.0, 2.0), "large": (0.92, 3.0, 9.0)},
}
"""By task and model: accuracy, ms of a batch and of each row."""
FLOORS: list[float | None] = [None, 0.85]
"""Every second query asks for the large model."""
LATENCIES_MS = [300.0, 1000.0]
WORKER_QPS = 170.0
"""What one worker serves of such queries, in batches of eight."""
VARIANTS = {(task, f"{model}-v1-uneven-fp32") for task, models in TASKS.items() for model in models}
SICK = "sick"
"""A file in the state directory; while it is there, the small model of the first task is ill."""

_PACKAGE = '''
"""Echoes; the small model of the first task gives NaN while a file is there."""

import os

import numpy as np

from workers.runtimes.echo import EchoRuntime


class UnevenRuntime(EchoRuntime):
    def __init__(self, spec, threads):
        super().__init__(spec, threads)
        self._ill = (spec.task, spec.variant) == ("first", "small-v1-uneven-fp32")

    def run(self, inputs):
        outputs = super().run(inputs)
        if self._ill and os.path.exists("{sick}"):
            return [np.full_like(output, np.nan) for output in outputs]
        return outputs
'''


def install(home: Path, state: Path) -> Path:
    """Leave the package as ``pip`` does; the folder to put on ``PYTHONPATH``."""
    packages = home / "packages"
    about = packages / "uneven-1.0.dist-info"
    about.mkdir(parents=True)
    (packages / "uneven.py").write_text(_PACKAGE.replace("{sick}", str(state / SICK)))
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: uneven\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(uneven.ENTRY_POINTS)
    return packages


def register(state: Path) -> None:
    for task, models in TASKS.items():
        uneven.register(state, task, models)


def artifact_of(state: Path, task: str, model: str) -> Path:
    """The file in the artifact store that a model is loaded from."""
    source = (state / f"{task}-{model}.txt").read_bytes()
    for path in (state / "artifacts").rglob("*"):
        if path.is_file() and path.read_bytes() == source:
            return path
    raise FileNotFoundError(f"no artifact of {task}/{model}")


def restore(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
