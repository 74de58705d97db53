"""Tasks that answer each position of a row: ``tags.4`` and ``tags.8`` under the name ``tags``."""

from typing import Any

from tests.variants.buckets import AXES, bucket
from variants.types import FollowingAxis, LengthBucket, Task, TaskName, TensorSpec

LABELS = ("O", "B", "I")


def tagging(length: int, **changes: Any) -> Task:
    """Gives scores of three classes for each position, a number for a row as a whole, and what is
    turned: two numbers for each position, the positions last."""
    given: dict[str, Any] = {
        "of": "tags",
        "outputs": (
            TensorSpec(name="scores", dtype="float32", shape=(length, 3)),
            TensorSpec(name="whole", dtype="float32", shape=(1,)),
            TensorSpec(name="turned", dtype="float32", shape=(2, length)),
        ),
        "labels": LABELS,
        "bucket": LengthBucket(
            of=TaskName("tags"),
            length=length,
            axes=AXES,
            outputs=(
                FollowingAxis(output="scores", axis=0),
                FollowingAxis(output="turned", axis=1),
            ),
        ),
    } | changes
    return bucket(length, **given)
