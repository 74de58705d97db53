"""The artifact store: bytes addressed by their SHA-256, written atomically."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from variants.types import Digest


class ArtifactStore(Protocol):
    """Keeps immutable artifacts by content hash."""

    def put(self, source: Path) -> Digest:
        """Copy a file in and return its digest; storing the same bytes again is no error.

        Either the whole artifact is there afterwards or nothing is.
        """

    def path(self, digest: Digest) -> Path:
        """A readable local path of the artifact; its bytes never change.

        Raises:
            NotFound: it is not in the store.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def delete(self, digest: Digest) -> None:
        """Remove an artifact; removing one that is not there is no error."""

    def digests(self) -> Iterator[Digest]:
        """All that is stored, in no particular order."""
