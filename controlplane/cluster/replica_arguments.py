"""What replicas of the gateway and the control loop are told as they start, apart.

Ray unpickles it before a replica can give way to others, so it must not import much.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

KNOWN_AS = ("controlplane.cluster.sent_settings", "SentSettings")
"""Where every build finds what a gateway says of its settings; here, only later ones do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSettings:
    """What a replica is told of the settings of the process that started its application."""

    release: str
    """Of modelless."""
    values: Mapping[str, Any]
    """Every setting that is no secret, as JSON would hold it."""
    secret: str
    """Digest of the channel secret; empty: whoever built the application did not see it."""
    digests: Mapping[str, str]
    """A keyed digest of each secret setting; none without that secret."""


class ToldSettings:
    """What a replica was told, for a command that may be of another build, as one that leads back
    is: it is unpickled there as that build's own ``SentSettings``."""

    def __init__(self, sent: SentSettings) -> None:
        self._sent = sent

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], list[Any]]:
        # By name: a class is pickled with the module that it is in now.
        return object.__new__, (_Known(),), list(asdict(self._sent).values())


class _Known:
    """Is unpickled as the class of the build that does it."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        module, name = KNOWN_AS
        return getattr, (_Module(module), name)


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return import_module, (self._name,)
