"""What is damaged where artifacts are kept is put back from a sound copy on another machine."""

from dataclasses import replace
from pathlib import Path

from controlplane.registry.damage import artifacts_of, damages
from controlplane.registry.example_models import damaged_models
from controlplane.registry.repairing import repair_all
from tests.planner.builders import version
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.served import ArtifactService, ServedArtifacts
from variants.artifacts.store import FileArtifactStore
from variants.types import CatalogSnapshot


def test_even_a_source_is_put_back_where_there_is_a_copy(tmp_path: Path) -> None:
    head = FileArtifactStore(tmp_path / "head")
    origin = ServedArtifacts(ArtifactService(head).answer)
    machine, empty = (
        CachedArtifactStore(tmp_path / name, origin, 1_000) for name in ("machine", "empty")
    )
    source = head.put_pieces([b"a" * 600])  # no room for two copies
    catalog = CatalogSnapshot(revision=1, versions=(replace(version("cnn"), source=source),))
    machine.sound(source)
    head.place(source).chmod(0o644)
    head.place(source).write_bytes(b"b" * 600)

    for store in (head, empty, machine):
        assert damaged_models(catalog, store) == {"cnn"}
        found = tuple(damages(artifacts_of(catalog), store.check))
        [repair] = repair_all(found, catalog, store)
        if store is machine:
            assert (repair.done, repair.message) == (
                True,
                "put back from a sound copy on this machine",
            )
        else:
            assert not repair.done
    assert head.sound(source).read_bytes() == b"a" * 600
    assert damaged_models(catalog, head) == set()
