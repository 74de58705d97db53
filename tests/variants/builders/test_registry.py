"""What every builder says of itself, and that the registry's names are true."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.network import images, write_onnx
from tests.variants.catalog_builders import variant
from variants.builders.protocol import Material, Needs
from variants.builders.registry import (
    BUILDERS,
    SAME_FILE,
    make_builder,
    missing_here,
    variant_name,
)
from variants.errors import VariantNotBuilt
from variants.types import NAME, ModelName
from workers.runtimes.registry import RUNTIMES


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_kind_is_called_after_its_runtime_and_precision(kind: str) -> None:
    builder = make_builder(kind)
    assert NAME.fullmatch(kind)
    assert f"{kind}-".startswith(f"{builder.runtime}-{builder.precision}-")
    assert builder.runtime in RUNTIMES


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_variant_runs_where_its_builder_says(kind: str) -> None:
    builder = make_builder(kind)
    made = replace(variant(), runtime=builder.runtime, options=dict(builder.options))
    assert made.gpu is builder.gpu is (BUILDERS[kind].device == "gpu")


@pytest.mark.parametrize("kind", BUILDERS)
def test_what_is_missing_is_one_clause(kind: str) -> None:
    missing = missing_here(kind)
    assert missing is None or (missing and "\n" not in missing and not missing.endswith("."))


def test_the_first_kind_is_the_model_itself_and_needs_nothing() -> None:
    first = make_builder(next(iter(BUILDERS)))
    assert (missing_here(next(iter(BUILDERS))), first.needs, first.gpu) == (
        None,
        frozenset(),
        False,
    )


def test_needs_are_said_in_words() -> None:
    needed = {need for kind in BUILDERS for need in make_builder(kind).needs}
    assert needed == set(Needs)


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    known = f"no builder makes 'onnx-int3'; there are: {sorted(BUILDERS)[0]}"
    with pytest.raises(VariantNotBuilt, match=known):
        make_builder("onnx-int3")


def test_a_variant_is_named_after_its_version_and_kind() -> None:
    assert variant_name(ModelName("cnn"), 2, "onnx-int8") == "cnn-v2-onnx-int8"


@pytest.mark.parametrize(("kind", "same_as"), SAME_FILE.items())
def test_kinds_of_the_same_file_are_made_alike(kind: str, same_as: str, tmp_path: Path) -> None:
    """One is built in place of both."""
    program = tmp_path / "program.pt2"
    program.write_bytes(b"an archive")
    material = Material(
        source=write_onnx(tmp_path / "network.onnx"),
        program=program,
        calibration={"image": images(64)},
    )
    targets = [tmp_path / f"{name}.made" for name in (kind, same_as)]
    notes = [
        make_builder(name).build(material, target)
        for name, target in zip((kind, same_as), targets, strict=True)
    ]
    assert notes[0] == notes[1]
    assert targets[0].read_bytes() == targets[1].read_bytes()
    assert (make_builder(kind).suffix, SAME_FILE.get(same_as)) == (
        make_builder(same_as).suffix,
        None,
    )
