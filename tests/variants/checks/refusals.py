"""What a check says of a file that it refuses."""

from collections.abc import Callable

from variants.errors import InvalidArtifact


def refusal_of(work: Callable[[], object]) -> str | None:
    """The sentence of a refusal, ``None`` when there was none; anything else is a failure."""
    try:
        work()
    except InvalidArtifact as refusal:
        return refusal.message
    return None
