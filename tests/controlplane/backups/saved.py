"""A catalog to be saved, saved and restored."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson

from controlplane.backups.archive import Summary
from controlplane.backups.reading import read_backup
from controlplane.backups.writing import write_backup
from tests.controlplane.fleet import register_echo
from tests.variants.catalog_builders import event, plan, tick
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.types import DeviceKindName, Peak, TaskName

Members = dict[str, bytes]


def sqlite(folder: Path, name: str = "there") -> str:
    return f"sqlite:///{folder / f'{name}.db'}"


def filled(url: str, store: FileArtifactStore, folder: Path) -> None:
    """A catalog with something in nearly all of its tables."""
    with closing(open_catalog(url)) as catalog:
        for model in ("a", "b"):
            register_echo(catalog, store, folder, model)
        catalog.set_inventory(DeviceKindName("cpu-1"), 2)
        epoch = catalog.acquire_leadership("here#1")
        stored = catalog.put_plan(plan(epoch))
        catalog.add_tick(tick(stored.version, why=["demand", 1.5, None]))
        catalog.add_event(event('it has "quotes", é and\na second line'))
        catalog.put_learned("forecast", 12.5, bytes(range(256)), epoch=epoch)
        catalog.add_peak(Peak(task=TaskName("digits"), factor=2.0, start_s=1e9, end_s=1e9 + 60))


def saved(url: str, store: FileArtifactStore, folder: Path, *, replace: bool = False) -> Path:
    file = folder / "backup.tar"
    write_backup(file, url, store, release="1.2.3", replace=replace)
    return file


def restored(file: Path, url: str, store: FileArtifactStore, folder: Path) -> Summary:
    return read_backup(file, url, store, scratch=folder)


def is_empty(folder: Path) -> bool:
    """Whether nothing is registered where a backup was to be restored."""
    if not (folder / "there.db").exists():
        return True
    with closing(open_catalog(sqlite(folder))) as catalog:
        return catalog.snapshot().tasks == ()


def read_members(file: Path) -> Members:
    with tarfile.open(file) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]


def rewritten(file: Path, change: Callable[[Members], None]) -> Path:
    """The backup with changed members."""
    members = read_members(file)
    change(members)
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


def change_summary(members: Members, **changes: object) -> None:
    members["backup.json"] = orjson.dumps(orjson.loads(members["backup.json"]) | changes)


def change_catalog(members: Members, rows: bytes) -> None:
    """Other rows, of which the summary knows."""
    members["catalog.jsonl"] = rows
    change_summary(members, catalog_sha256=hashlib.sha256(rows).hexdigest())
