"""What was built before of one version, kind by kind, in the build cache."""

import shutil
from dataclasses import asdict
from pathlib import Path

from controlplane.building.build_cache import BuildCache
from controlplane.building.sources import Sources
from controlplane.building.work_keys import building_tools, key_of
from variants.builders.protocol import Needs
from variants.builders.registry import SAME_FILE, make_builder
from variants.errors import VariantNotBuilt
from variants.types import Digest

REFUSED_S = 3_600.0
"""For so long a kind that could not be built is not tried again. What a builder was refused by may
have been for want of memory, which this machine may have had too little of at that moment."""


class KnownBuilds:
    """Files of variants by their kinds, as far as they were built of the same before."""

    def __init__(self, source: Digest, sources: Sources, cache: BuildCache | None) -> None:
        """``source`` is the digest of the model as it was handed in."""
        self._source = source
        self._sources = sources
        self._cache = cache

    @property
    def folder(self) -> Path:
        """Where they are kept."""
        return Path() if self._cache is None else self._cache.root

    def take(self, kind: str, target: Path) -> str | None:
        """Copy the file of a kind to ``target``; what its builder said of it. None: there is none.

        Raises:
            VariantNotBuilt: it could not be built of the same, not long ago.
        """
        if self._cache is None:
            return None
        refused = self._cache.find(self._key(kind, "refusal"), newest_s=REFUSED_S)
        if refused is not None:
            raise VariantNotBuilt(str(refused.value["reason"]))
        found = self._cache.find(self._key(kind, "file"), target)
        if found is None:
            return None
        if found.value["is_source"]:
            shutil.copyfile(self._sources.handed_in, target)
        return str(found.value["note"])

    def keep(self, kind: str, artifact: Digest, path: Path, note: str) -> None:
        """Keep what was built, whose digest is ``artifact``."""
        if self._cache is not None:
            is_source = artifact == self._source
            value = {"note": note, "is_source": is_source}
            self._cache.keep(self._key(kind, "file"), value, None if is_source else path)

    def keep_refusal(self, kind: str, reason: str) -> None:
        """Keep why a builder could not make its kind of variant of this model."""
        if self._cache is not None:
            self._cache.keep(self._key(kind, "refusal"), {"reason": reason})

    def _key(self, kind: str, what: str) -> str:
        kind, sources = SAME_FILE.get(kind, kind), self._sources
        learns = Needs.TEACHER in make_builder(kind).needs
        return key_of(
            what=what,
            kind=kind,
            source=self._source,
            calibration=sources.calibration_digest,
            training=sources.training_digest,
            teacher=sources.teacher_digest if learns else "",
            floor=sources.floor,
            loss=sources.loss,
            metric=sources.metric,
            judged_output=sources.judged_output,
            along=sources.along,
            bucket=None if sources.bucket is None else asdict(sources.bucket),
            tools=building_tools(kind, trains=sources.training is not None),
        )
