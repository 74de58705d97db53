"""Where a worker has the artifacts from that it loads: files that it sees, or copies of its own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.integrity import Seen, Verified
from variants.artifacts.integrity import seen as look_at
from variants.artifacts.store import place_of
from variants.errors import StateUnavailable, VariantNotLoadable
from variants.types import Digest
from workers.types import LoadSpec

CHANGED = "its artifact was changed while it was loaded"


class Read(NamedTuple):
    """What became of reading an artifact."""

    file: Seen | None
    """How it looks where it is kept: with an error, how it looked before; None: nobody knows."""
    error: VariantNotLoadable | None = None
    """It is not sound, or cannot be read."""


class Artifacts(Protocol):
    """What loading needs to know of artifacts."""

    fetches: bool
    """Whether ``read`` and ``look`` ask another machine, which may take long."""

    def placed(self, spec: LoadSpec) -> LoadSpec:
        """The spec with the path at which the artifact is, or will be, on this machine."""

    def look(self, spec: LoadSpec) -> Seen | None:
        """How the artifact looks where it is kept: changed, it is worth another try to load it."""

    def known(self, spec: LoadSpec) -> Seen | None:
        """The same of when it was read, if this process has read it and it is unchanged here.
        Asks nobody and reads nothing."""

    def read(self, spec: LoadSpec) -> Read:
        """Have it here, read it and compare it with its digest."""

    def held(self, spec: LoadSpec, file: Seen | None) -> AbstractContextManager[None]:
        """While this is entered, the artifact is at its path, as it was read when it looked so.

        Raises:
            ArtifactDamaged, VariantNotLoadable: it is not sound, or has changed meanwhile.
        """


class SeenArtifacts:
    """``Artifacts`` in the folder of a file store; without one, at the paths that specs name."""

    fetches = False

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._verified = Verified()

    def placed(self, spec: LoadSpec) -> LoadSpec:
        if self._root is None or not spec.path:
            return spec
        return replace(spec, path=str(place_of(self._root, spec.artifact)))

    def look(self, spec: LoadSpec) -> Seen | None:
        return look_at(Path(spec.path))

    def known(self, spec: LoadSpec) -> Seen | None:
        return self._verified.known(Path(spec.path), spec.artifact)

    def read(self, spec: LoadSpec) -> Read:
        before = self.look(spec)
        try:
            return Read(self._verified.check(Path(spec.path), spec.artifact))
        except VariantNotLoadable as error:
            return Read(before, error)

    @contextmanager
    def held(self, spec: LoadSpec, file: Seen | None) -> Iterator[None]:
        yield
        if file is not None and self.look(spec) != file:
            raise VariantNotLoadable(CHANGED)


class CopiedArtifacts:
    """``Artifacts`` that are fetched by their digests, wherever their specs say they are."""

    fetches = True

    def __init__(self, store: CachedArtifactStore) -> None:
        self._store = store
        self._looked: dict[Digest, Seen | None] = {}
        """How those that were read look where they are kept."""

    def placed(self, spec: LoadSpec) -> LoadSpec:
        return replace(spec, path=str(self._store.place(spec.artifact))) if spec.path else spec

    def look(self, spec: LoadSpec) -> Seen | None:
        try:
            return self._store.origin.look(spec.artifact)
        except StateUnavailable:
            return None

    def known(self, spec: LoadSpec) -> Seen | None:
        here = self._store.known(spec.artifact)
        return None if here is None else self._looked.get(spec.artifact)

    def read(self, spec: LoadSpec) -> Read:
        is_here = self._store.is_sound_here(spec.artifact)
        file = self.look(spec)  # once: a copy that is here waits this long for a head that is away
        try:
            if not is_here:
                self._store.sound(spec.artifact)
        except VariantNotLoadable as error:
            return Read(file, error)
        self._looked[spec.artifact] = file
        return Read(file)

    @contextmanager
    def held(self, spec: LoadSpec, file: Seen | None) -> Iterator[None]:
        if not spec.path:
            yield
            return
        with self._store.held(spec.artifact) as (path, found):
            yield
            if look_at(path) != found:
                raise VariantNotLoadable(CHANGED)
