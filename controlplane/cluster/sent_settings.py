"""What replicas of the gateway and the control loop are told as they start, apart.

Ray unpickles it before a replica can give way to others, so it must not import much. Commands of
other builds unpickle it too, as one that leads back to an earlier release: it stays in this module,
under this name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
