"""Parts of paths that several routes have."""

from typing import Annotated

from fastapi import Path

TaskPath = Annotated[str, Path(description="Name of a task.", examples=["digits"])]
ModelPath = Annotated[str, Path(description="Name of a model.", examples=["cnn-small"])]
WorkerPath = Annotated[
    str, Path(description="Name of a worker.", examples=["cpu-4-x2d1"], max_length=256)
]
