"""Damage: which artifacts that the catalog names are missing, or not what was registered."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from controlplane.building.types import Progress
from variants.container import usable_cores
from variants.errors import VariantNotLoadable
from variants.types import CatalogSnapshot, Digest, ModelVersion, Variant

READERS = 4
"""Artifacts that are read at once: one reader does not fill a disk."""
AGAIN = "register the same file again, with the same rows"

Check = Callable[[Digest], object]
"""Reads an artifact; raises ``VariantNotLoadable`` when it is not what its name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An artifact that the catalog names, and what it belongs to."""

    digest: Digest
    variants: tuple[Variant, ...] = ()
    versions: tuple[ModelVersion, ...] = ()
    """Versions that have it as their source."""

    @property
    def size_bytes(self) -> int:
        """0 for a source that no variant shares: the catalog does not know."""
        return max((variant.size_bytes for variant in self.variants), default=0)

    @property
    def subjects(self) -> tuple[str, ...]:
        """``digits/cnn-v1-onnx-fp32``, ``source of digits/cnn-v1``."""
        return (
            *(f"{v.task}/{v.name}" for v in self.variants),
            *(f"source of {v.task}/{v.label}" for v in self.versions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """An artifact that is missing or not what was registered."""

    stored: Stored
    why: str
    """One clause: ``its artifact 3fa4b2c19d0e is missing``."""

    @property
    def remedy(self) -> str:
        """What to do, as far as that can be said without trying."""
        return AGAIN if self.stored.versions else "`modelless repair` rebuilds it from its source"


def artifacts_of(
    catalog: CatalogSnapshot,
    task: str | None = None,
    *,
    version: str | None = None,
    variant: str | None = None,
) -> tuple[Stored, ...]:
    """All artifacts that the catalog names, each once; or those of a task, of one of its versions
    (``cnn-v1``), or of one variant alone."""
    found: dict[Digest, Stored] = {}
    for source in catalog.versions:
        known = found.get(source.source, Stored(digest=source.source))
        found[source.source] = replace(known, versions=(*known.versions, source))
    for one in catalog.variants:
        known = found.get(one.artifact, Stored(digest=one.artifact))
        found[one.artifact] = replace(known, variants=(*known.variants, one))

    def is_asked(stored: Stored) -> bool:
        if any(
            task in (None, one.task)
            and version in (None, one.model_version)
            and variant in (None, one.name)
            for one in stored.variants
        ):
            return True
        return variant is None and any(
            task in (None, one.task) and version in (None, one.label) for one in stored.versions
        )

    return tuple(stored for stored in found.values() if is_asked(stored))


def damages(
    artifacts: Iterable[Stored],
    check: Check,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Iterator[Damage]:
    """Yields the artifacts that are not sound, as they are found. All are read, a few at a time."""
    listed = tuple(artifacts)
    total_mib = sum(one.size_bytes for one in listed) / 2**20
    done_mib = 0.0
    with ThreadPoolExecutor(min(READERS, usable_cores())) as pool:
        for index, (one, why) in enumerate(
            zip(listed, pool.map(lambda one: _fault(one, check), listed), strict=True)
        ):
            done_mib += one.size_bytes / 2**20
            said = f"read {done_mib:,.0f} of {total_mib:,.0f} MiB"
            progress(Progress(step="check", done=index + 1, total=len(listed), message=said))
            if why:
                yield Damage(stored=one, why=why)


def _fault(one: Stored, check: Check) -> str:
    try:
        check(one.digest)
    except VariantNotLoadable as error:
        return error.message
    return ""
