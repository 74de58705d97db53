"""A load spec's options, read."""

from collections.abc import Collection

from variants.errors import RuntimeFailed
from workers.types import LoadSpec


class Options:
    """The options that a variant gives its runtime, as text by name."""

    def __init__(self, spec: LoadSpec) -> None:
        self._name = f"{spec.task}/{spec.variant}"
        self._values = dict(spec.options)

    def text(self, name: str) -> str:
        """The option as it is written; empty when it is not given."""
        return self._values.get(name, "")

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """The option as one of several words.

        Raises:
            RuntimeFailed: it is another one.
        """
        value = self._values.get(name, default)
        if value not in allowed:
            known = ", ".join(allowed)
            raise RuntimeFailed(f"{self._name} has {name} {value!r}; there are: {known}")
        return value

    def threads(self, given: int) -> int:
        """How many threads compute one batch: as many as are given, or fewer if it says so.

        Raises:
            RuntimeFailed: it is no number from 1 on.
        """
        text = self._values.get("threads", str(given))
        if not text.isdecimal() or not int(text):
            raise RuntimeFailed(f"{self._name} has threads {text!r}, not a number from 1 on")
        return min(int(text), given)
