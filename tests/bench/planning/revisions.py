"""What a new revision of a large catalog costs who follows it: ``python -m
tests.bench.planning.revisions``.

500 tasks of 20 variants, each with profiles on two device kinds. One profile is put again and
again, and in turns each revision is read by a process that knows nothing and by one that knows the
revision before. Beside them stands what a gateway makes of either: the objects that it had, load
specs, and the snapshot from which queries are chosen. Processor time of this process, medians.

The catalog is in SQLite; ``--url`` names an empty PostgreSQL database instead.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import TypeVar

from controlplane.load_specs import Specs
from planner.selection.snapshot import build_snapshot
from planner.types import Snapshot
from tests.bench.machine import describe
from tests.variants.catalog_builders import kind, points, profile, registration, variant
from variants.artifacts.store import FileArtifactStore
from variants.catalog.known_objects import keeping
from variants.catalog.protocol import Catalog
from variants.catalog.sql import SqlCatalog, open_catalog
from variants.types import CatalogSnapshot

TASKS = 500
VARIANTS = 20
KINDS = ("cpu-1", "cpu-4")
BATCHES = (1, 2, 4, 8, 16)
ROUNDS = 7

T = TypeVar("T")


def fill(catalog: Catalog) -> None:
    for number in range(TASKS):
        of = f"task-{number:03}"
        variants = tuple(variant(of=of, name=f"mlp-v1-onnx-{n}") for n in range(VARIANTS))
        measured = points(*((rows, float(rows)) for rows in BATCHES))
        profiles = tuple(
            profile(one.name, of, on, points=measured) for one in variants for on in KINDS
        )
        kinds = tuple(map(kind, KINDS))
        catalog.register(
            registration(of=of, variants=variants, profiles=profiles, device_kinds=kinds)
        )


class Times:
    """Milliseconds of processor time by what took them, in the order in which they came first."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = {}

    def taken(self, what: str, work: Callable[[], T]) -> T:
        gc.collect()
        began_s = process_time()
        done = work()
        self.of.setdefault(what, []).append(1_000 * (process_time() - began_s))
        return done


def measure(url: str, folder: Path) -> Times:
    times = Times()
    writer, follower = open_catalog(url), SqlCatalog(url)
    fill(writer)
    store = FileArtifactStore(folder / "artifacts")
    known: CatalogSnapshot = follower.snapshot()
    chosen_from: Snapshot = build_snapshot(known, [])
    for number in range(ROUNDS):
        changed = profile("mlp-v1-onnx-3", "task-100", points=points((1, 2.0 + number)))
        times.taken("writing the change", partial(writer.put_profiles, (changed,)))
        anew = SqlCatalog(url)
        whole = times.taken("reading all", anew.snapshot)
        anew.close()
        later = times.taken("reading what changed", follower.snapshot)
        assert later == whole
        times.taken("finding what is as before, of all", partial(keeping, whole, known))
        known = times.taken(
            "finding what is as before, of what changed", partial(keeping, later, known)
        )
        times.taken("load specs", partial(Specs, known, store))
        chosen_from = times.taken(
            "the snapshot to choose from",
            partial(build_snapshot, known, [], before=chosen_from),
        )
    writer.close()
    follower.close()
    return times


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="", help="of an empty PostgreSQL database")
    given = parser.parse_args(arguments)
    print(describe())
    with TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{folder}/catalog.db"
        times = measure(url, Path(folder))
    print(f"{TASKS} tasks, {TASKS * VARIANTS:,} variants, {len(KINDS)} profiles each")
    for what, took_ms in times.of.items():
        print(f"{what:>45}: {median(took_ms):9.1f} ms ({min(took_ms):.1f} to {max(took_ms):.1f})")


if __name__ == "__main__":
    main(sys.argv[1:])
