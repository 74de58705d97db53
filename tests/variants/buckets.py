"""Tasks for rows of several lengths: ``texts.4`` and ``texts.8`` under the name ``texts``."""

from typing import Any

from variants.types import LengthBucket, OpenAxis, Slo, Task, TaskName, TensorSpec

AXES = (OpenAxis(input="ids", axis=0, pad=1.0), OpenAxis(input="mask", axis=0))


def bucket(
    length: int, of: str = "texts", axes: tuple[OpenAxis, ...] = AXES, **changes: Any
) -> Task:
    """Takes ``ids``, filled up with 1, their ``mask``, filled up with 0, and a ``weight``."""
    given: dict[str, Any] = {
        "name": TaskName(f"{of}.{length}"),
        "inputs": (
            TensorSpec(name="ids", dtype="int64", shape=(length,)),
            TensorSpec(name="mask", dtype="int64", shape=(length,)),
            TensorSpec(name="weight", dtype="float32", shape=(2,)),
        ),
        "outputs": (TensorSpec(name="scores", dtype="float32", shape=(3,)),),
        "labels": ("a", "b", "c"),
        "slo": Slo(latency_ms=50.0),
        "bucket": LengthBucket(of=TaskName(of), length=length, axes=axes),
    } | changes
    return Task(**given)
