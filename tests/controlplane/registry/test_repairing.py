"""Damaged artifacts: found, rebuilt to the byte, or refused with the reason."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controlplane.building.meter import Meter
from controlplane.building.types import RegistrationLimits, RegistrationRequest
from controlplane.registry.damage import Damage, Stored, artifacts_of, damages
from controlplane.registry.extension import extend
from controlplane.registry.repairing import Repairing, repair_all
from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, QUICK, House
from variants.builders.onnx_fp32 import simplify
from variants.errors import ArtifactDamaged, Conflict
from variants.onnx_wire import without_weights
from variants.types import Digest, Variant

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("first"))
    made.register(kinds=("onnx-int8", "onnx-fp16"), threads=False)
    return made


@pytest.fixture
def house(first: House, tmp_path: Path) -> House:
    """One version as fp32, and quantised with and without rows."""
    return House.like(first, tmp_path)


def variant(house: House, kind: str) -> Variant:
    return next(v for v in house.catalog.snapshot().variants if v.name == f"tiny-v1-onnx-{kind}")


def stored(house: House, kind: str) -> Path:
    """Where a variant's artifact lies, or the version's source."""
    if kind == "source":
        return house.store.place(house.catalog.snapshot().versions[0].source)
    return house.store.place(variant(house, kind).artifact)


def spoil(path: Path) -> bytes:
    """Change a byte; what was there."""
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    return whole


def found(house: House) -> list[Damage]:
    return list(damages(artifacts_of(house.catalog.snapshot()), house.store.sound))


def wide(path: Path) -> Path:
    """As other models of the task, with 17 MiB of weights."""
    width, draw = 700_000, np.random.default_rng(0)
    weights = {
        "into": draw.random((4, width), np.float32),
        "out": draw.random((width, 3), np.float32),
    }
    nodes = [
        models.node("MatMul", ("pixels", "into"), "a"),
        models.node("MatMul", ("a", "out"), "scores"),
    ]
    return models.write(path, models.model(nodes=nodes, weights=weights))


def repaired(house: House, limits: RegistrationLimits = QUICK) -> list[tuple[bool, str]]:
    found_ = found(house)
    done = repair_all(
        found_, house.catalog.snapshot(), house.store, limits=limits, scratch=house.scratch
    )
    assert list(house.scratch.iterdir()) == []
    house.assert_nothing_runs()
    return [(one.done, one.message) for one in done]


def test_each_artifact_is_read_once_and_belongs_to_somebody(house: House) -> None:
    read: list[Digest] = []
    listed = artifacts_of(house.catalog.snapshot())
    assert list(damages(listed, read.append)) == []
    assert sorted(read) == sorted(house.store.digests())
    subjects = {subject for one in listed for subject in one.subjects}
    assert subjects == {
        "source of shapes/tiny-v1",
        *(f"shapes/tiny-v1-onnx-{kind}" for kind in ("fp32", "fp16", "int8")),
    }
    assert artifacts_of(house.catalog.snapshot(), "other") == ()
    [one] = artifacts_of(house.catalog.snapshot(), "shapes", variant="tiny-v1-onnx-int8")
    assert one == Stored(digest=variant(house, "int8").artifact, variants=(variant(house, "int8"),))


def test_the_model_itself_is_rebuilt_from_its_source(house: House) -> None:
    whole = spoil(stored(house, "fp32"))
    [damage] = found(house)
    assert damage.stored.subjects == ("shapes/tiny-v1-onnx-fp32",)
    assert damage.remedy == "`modelless repair` rebuilds it from its source"
    assert repaired(house) == [(True, "rebuilt from its source, the same to the byte")]
    assert stored(house, "fp32").read_bytes() == whole
    assert found(house) == []


def test_truncated_and_missing_artifacts_are_rebuilt(house: House) -> None:
    stored(house, "fp32").chmod(0o644)
    stored(house, "fp32").write_bytes(b"")
    stored(house, "fp16").unlink()
    assert [done for done, _ in repaired(house)] == [True, True]
    assert found(house) == []


def test_what_was_calibrated_is_not_replaced_by_something_else(house: House) -> None:
    spoil(stored(house, "int8"))
    [(done, message)] = repaired(house)
    assert not done
    assert "register the same file again, with the same rows" in message
    with pytest.raises(ArtifactDamaged):
        house.store.sound(variant(house, "int8").artifact)


def test_a_damaged_source_is_said_and_nothing_is_built_of_it(house: House) -> None:
    spoil(stored(house, "source"))
    [(done, message)] = repaired(house)
    assert (done, message) == (
        False,
        "it is the model as it was handed in; register the same file again, with the same rows",
    )
    spoil(stored(house, "fp32"))
    messages = {message for _, message in repaired(house)}
    assert any(message.startswith("its source") for message in messages)


def test_large_files_are_rebuilt_whether_or_not_their_weights_were_aligned(tmp_path: Path) -> None:
    """Weights of large files lie where runtimes can map them, but not in what was built before."""
    house = House(tmp_path)
    limits = replace(QUICK, model_mib=64)
    house.register(path=wide(tmp_path / "tiny.onnx"), kinds=("onnx-fp32",), limits=limits)
    assert without_weights(stored(house, "fp32").read_bytes(), "file")[1] != []
    spoil(stored(house, "fp32"))
    assert repaired(house, limits) == [(True, "rebuilt from its source, the same to the byte")]

    simplify(stored(house, "source"), tmp_path / "before.onnx")
    before = house.store.put(tmp_path / "before.onnx")
    assert before != variant(house, "fp32").artifact
    whole = spoil(house.store.place(before))
    other = replace(variant(house, "fp32"), artifact=before)
    damage = Damage(stored=Stored(digest=before, variants=(other,)), why="is damaged")
    snapshot, meter = house.catalog.snapshot(), Meter(lambda _: None)
    result = Repairing(snapshot, house.store, meter, limits, scratch=house.scratch).repair(damage)
    assert (result.done, house.store.place(before).read_bytes()) == (True, whole)


def test_other_bytes_than_were_measured_are_refused(house: House) -> None:
    """As if a library had changed since: the catalog names bytes that no builder makes."""
    snapshot = house.catalog.snapshot()
    unbuildable = house.store.put_pieces([b"measured once"])
    spoil(house.store.place(unbuildable))
    other = replace(variant(house, "fp32"), artifact=unbuildable)
    damage = Damage(stored=Stored(digest=unbuildable, variants=(other,)), why="is damaged")
    repairing = Repairing(
        snapshot, house.store, Meter(lambda _: None), QUICK, scratch=house.scratch
    )
    result = repairing.repair(damage)
    assert (result.done, "makes other bytes now" in result.message) == (False, True)
    assert set(house.store.digests()) == {unbuildable} | {
        snapshot.versions[0].source,
        *(v.artifact for v in snapshot.variants),
    }


def test_registering_the_same_file_again_repairs_everything(house: House) -> None:
    before = house.catalog.snapshot()
    whole = {kind: spoil(stored(house, kind)) for kind in ("source", "fp32", "int8")}
    result = house.register(kinds=("onnx-int8", "onnx-fp16"), threads=False)
    assert (result.versions, result.unchanged) == ((), ("tiny-v1",))
    assert sorted(result.repaired) == [
        "shapes/tiny-v1-onnx-fp32: rebuilt from its source, the same to the byte",
        "shapes/tiny-v1-onnx-int8: rebuilt from its source, the same to the byte",
        "source of shapes/tiny-v1: restored",
    ]
    assert found(house) == []
    assert {kind: stored(house, kind).read_bytes() for kind in whole} == whole
    assert house.catalog.snapshot() == before
    with pytest.raises(Conflict, match="registered already"):
        house.register()


def test_nothing_is_judged_against_a_damaged_model(house: House) -> None:
    spoil(stored(house, "fp32"))
    request = RegistrationRequest(
        path=house.model, task="shapes", evaluation=house.rows, kinds=("onnx-int8-dynamic",)
    )
    with pytest.raises(ArtifactDamaged, match=r"tiny-v1-onnx-fp32: its artifact .* is damaged"):
        extend(
            request, "tiny", None, house.catalog, house.store, (CPU,), limits=QUICK,
            scratch=house.scratch,
        )  # fmt: skip
