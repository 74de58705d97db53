"""Pictures, tasks that take them, and how they are read."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from tests.controlplane.serving import TASK
from variants.types import Task, TensorSpec


def picture(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    """A file of these pixels: [height, width] grey, [height, width, 3] RGB."""
    made = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(made, kind, **options)
    return made.getvalue()


def task_with(*shape: int, dtype: str = "float32") -> Task:
    return replace(TASK, inputs=(TensorSpec(name="x", dtype=dtype, shape=shape),))


GREY = [[0, 51], [102, 255]]
RGB = [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [51, 102, 153]]]
