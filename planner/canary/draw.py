"""Which queries are drawn for a canary: by a hash of their request id, the same everywhere."""

from hashlib import blake2b

_BYTES = 8
_ALL = 1 << (8 * _BYTES)


def salt_of(task: str, label: str) -> bytes:
    """What makes the draws of two canaries independent: else the same ids would be drawn always.

    Args:
        label: how the version is named: ``cnn-small-v2``.
    """
    return blake2b(f"{task}/{label}".encode(), digest_size=16).digest()


def limit_of(share: float) -> int:
    """Hashes below this are drawn."""
    return round(share * _ALL)


def is_drawn(request_id: bytes, salt: bytes, limit: int) -> bool:
    """Whether the query with this id is one of the share."""
    digest = blake2b(request_id, digest_size=_BYTES, key=salt).digest()
    return int.from_bytes(digest, "big") < limit
