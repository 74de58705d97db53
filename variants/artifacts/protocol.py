"""The artifact store: bytes addressed by their SHA-256, written atomically.

A process sees the store's folder (``store``), or keeps copies of what it needs in a folder of its
machine (``cache``) and has them from an ``ArtifactOrigin`` elsewhere (``served``, ``s3``).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from variants.artifacts.integrity import Seen
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

    def look(self, digest: Digest) -> Seen | None:
        """How the artifact looks where it is kept, with the time at which it was stored last or
        first; None when there is none. Reads nothing.

        Raises:
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
            StateUnavailable: where it is kept does not answer.
        """

    def size_bytes(self, digest: Digest) -> int:
        """How many bytes the artifact has. Reads none of them.

        Raises:
            NotFound: it is not in the store.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def sound(self, digest: Digest) -> Path:
        """A readable local path of the artifact, which was read and is what its name says.

        Raises:
            ArtifactDamaged: it is missing or holds other bytes.
            VariantNotLoadable: it cannot be read.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """

    def check(self, digest: Digest) -> None:
        """Read the artifact where it is kept, whatever copies there are.

        Raises:
            ArtifactDamaged: it is missing or holds other bytes.
            VariantNotLoadable: it cannot be read.
            StateUnavailable: where it is kept does not answer.
        """

    def put_back(self, digest: Digest) -> bool:
        """Store the artifact anew where it is kept, from a sound copy on this machine; whether
        there is one beside what is kept.

        Raises:
            StateUnavailable: it cannot be stored.
        """

    def delete(self, digest: Digest) -> None:
        """Remove an artifact; removing one that is not there is no error."""

    def digests(self) -> Iterator[Digest]:
        """All that is stored, in no particular order."""


class ArtifactOrigin(Protocol):
    """Where all artifacts are kept, seen from a machine that does not see their files.

    Everything here asks another machine.

    Raises, whatever is asked:
        StateUnavailable: it does not answer, or cannot read or write.
        InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
    """

    def look(self, digest: Digest) -> Seen | None:
        """How the artifact's file looks, equal for as long as nothing was written to it; None when
        there is none. Reads nothing."""

    def size_bytes(self, digest: Digest) -> int:
        """How many bytes the artifact has.

        Raises:
            NotFound: it is not there.
        """

    def check(self, digest: Digest) -> int:
        """Read the artifact there and compare it with its name; returns how many bytes it has.

        Raises:
            ArtifactDamaged: it is missing there, or holds other bytes.
            VariantNotLoadable: it cannot be read.
        """

    def pieces(self, digest: Digest) -> Iterator[bytes]:
        """Yields the artifact's bytes, a few MiB at a time.

        What comes has to be compared with its name: a piece may be lost or changed on its way.

        Raises:
            ArtifactDamaged: it is missing there, or was found there to hold other bytes.
            VariantNotLoadable: it cannot be read.
        """

    def put(self, digest: Digest, source: Path) -> None:
        """Copy the artifact there, which is ``source``; storing the same bytes again is no error.

        Either the whole artifact is there afterwards or nothing is. A damaged one is replaced.

        Raises:
            ArtifactDamaged: what came there is not what ``digest`` says.
        """

    def delete(self, digest: Digest) -> None:
        """Remove an artifact; removing one that is not there is no error."""

    def digests(self) -> list[Digest]:
        """All that is stored, in no particular order."""
