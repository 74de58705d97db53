"""KeysStatus: whether the file of clients' keys can be read, as one sentence.

A gateway goes on with the keys that it has where its file is wrong, so that nothing shows it until
one starts anew, which has none. ``modelless status``, ``modelless top`` and the page tell it.
"""

from dataclasses import dataclass
from enum import StrEnum


class KeysLevel(StrEnum):
    """Whether the file of clients' keys can be read."""

    READ = "keys_read"
    """Also where there is none."""
    WRONG = "keys_wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysStatus:
    """Whether the file of clients' keys can be read."""

    level: KeysLevel
    sentence: str
    """Empty where it can."""


def keys_status(wrong: str, *, known: bool) -> KeysStatus:
    """Judge by the last look of the gateway that answers.

    Args:
        wrong: what is wrong with the file; empty where nothing is.
        known: whether the gateway had read it before.
    """
    if not wrong:
        return KeysStatus(level=KeysLevel.READ, sentence="")
    now = (
        "this gateway goes on with the keys that it has, and one that starts has none"
        if known
        else "this gateway has started without keys, and knows no client"
    )
    return KeysStatus(
        level=KeysLevel.WRONG,
        sentence=f"The keys of clients cannot be read: {now}. Correct the file: {wrong}.",
    )
