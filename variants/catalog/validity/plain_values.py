"""Names, numbers and texts that every catalog can store.

Each check raises ``InvalidInput`` with one sentence; ``where`` begins it, and says of what it is.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable

from variants.errors import InvalidInput
from variants.types import NAME

LARGEST = 2**31 - 1
"""The largest version number, batch size or core count that every database can hold."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """A text with every character replaced that no catalog can store."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def check_name(name: str, what: str) -> None:
    """Refuse a name that breaks ``NAME``; ``what`` is what it names, such as ``a task``."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:40]!r} cannot be the name of {what}: names have up to 128 of a-z, 0-9, '.', "
            "'_' and '-', and begin with a letter or a digit"
        )


def check_digest(digest: str, where: str) -> None:
    """Refuse what is no SHA-256 in hexadecimal digits."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"{where} is {digest!r}, not 64 lower-case hexadecimal digits")


def check_count(count: int, where: str, least: int = 1) -> None:
    """Refuse a count below ``least``, or above what a database holds."""
    if not least <= count <= LARGEST:
        raise InvalidInput(f"{where} is {count}; it must be between {least} and {LARGEST}")


def check_number(number: float, where: str) -> None:
    """Refuse what is negative, infinite or no number."""
    if not (math.isfinite(number) and number >= 0):
        raise InvalidInput(f"{where} is {number}; it must be finite and not negative")


def check_storable(text: str, where: str) -> None:
    """Refuse a text that ``storable`` would change."""
    if _UNSTORABLE.search(text):
        raise InvalidInput(f"{where} contains a character that cannot be stored")


def check_unique(what: str, names: Iterable[str]) -> None:
    """Refuse names of which two are equal; ``what`` is what they name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{what} {twice[0]!r} is given twice")
