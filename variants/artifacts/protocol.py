"""The artifact store: bytes addressed by their SHA-256, written atomically."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from variants.types import Digest


class ArtifactStore(Protocol):
    """Keeps immutable artifacts by content hash."""

    def put(self, source: Path) -> Digest:
        """Copy a file in and return its digest; storing the same bytes again is no error.

        Either the whole artifact is there afterwards or nothing is. A damaged one is replaced.
        """

    def path(self, digest: Digest) -> Path:
        """A readable local path of the artifact, whose bytes are not meant to change.

        Raises:
            NotFound: it is not in the store.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def place(self, digest: Digest) -> Path:
        """Where the artifact belongs, whether it is there or not. Looks at nothing.

        Raises:
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def sound(self, digest: Digest) -> Path:
        """A readable local path of the artifact, which was read and is what its name says.

        Raises:
            ArtifactDamaged: it is missing or holds other bytes.
            VariantNotLoadable: it cannot be read.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def delete(self, digest: Digest) -> None:
        """Remove an artifact; removing one that is not there is no error."""

    def digests(self) -> Iterator[Digest]:
        """All that is stored, in no particular order."""
