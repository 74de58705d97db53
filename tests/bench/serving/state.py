"""A state directory whose catalog holds the digits family, kept between benchmarks.

Measuring 14 variants takes a minute, and no number but that of a first start depends on it.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import variants
from controlplane.registry.example_models import ensure_digits
from controlplane.settings import Settings, load_settings
from tests.machine_cache import digits_folder
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.zoo import digits

ROOT = Path(variants.__file__).parents[1]
MADE_BY = (
    "variants/catalog/migrations/versions",
    "variants/builders",
    "variants/catalog/tables.py",
    "profiler",
    "controlplane/registry/registration.py",
    "controlplane/registry/preparation.py",
)
"""Code that decides what stands in the catalog."""


def copy_filled(home: Path, fresh: bool = False) -> Path:
    """A state directory in ``home`` with the family registered: catalog and artifacts.

    ``fresh``: measured now, not taken from an earlier benchmark.
    """
    kept = _filled(fresh)
    state = home / "s"
    state.mkdir()
    shutil.copy(kept / "catalog.db", state)
    shutil.copytree(kept / "artifacts", state / "artifacts")
    return state


def _filled(fresh: bool) -> Path:
    """The kept one; made again when the recipe, the schema or anything else behind it changed."""
    family = digits_folder()
    cache = family.parent
    kept = cache / "bench-state"
    with (cache / "bench-state.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = load_settings(state_dir=kept)
        mark = kept / "made-by"
        wanted = _digest(settings)
        if fresh or not (mark.exists() and mark.read_text() == wanted):
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(family, kept / "zoo" / digits.FAMILY)
            with closing(open_catalog(settings.catalog_url)) as catalog:
                ensure_digits(settings, catalog, FileArtifactStore(settings.artifacts_dir))
            mark.write_text(wanted)
    return kept


def _digest(settings: Settings) -> str:
    """Of the recipe, the code that fills a catalog, what it measures with, and the slice."""
    digest = sha256(digits.recipe_digest().encode())
    for path in _sources():
        digest.update(path.read_bytes())
    kind = settings.kinds[0]
    what = (kind.name, kind.memory_mib, version("onnxruntime"), version("onnx"))
    digest.update(repr(what).encode())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for name in MADE_BY:
        path = ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)
