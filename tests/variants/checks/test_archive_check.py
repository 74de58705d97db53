"""Archives of PyTorch models: what a sound one says, and that only sound ones are let through."""

import copy
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import onnx_models as models
from tests.corpus import pt2
from tests.variants.checks.refusals import refusal_of
from variants.checks.archive.archive_check import (
    ArchiveInfo,
    ArchiveLimits,
    check_archive,
    extract_onnx,
)
from variants.checks.archive.program_check import SCHEMA, check_program
from variants.checks.archive.tensor_layout import ITEM_BYTES
from variants.checks.onnx_check import OnnxLimits
from variants.checks.zip_layout import pieces, read_layout
from variants.errors import InvalidArtifact
from variants.types import TensorSpec

pytestmark = pytest.mark.slow

PIXELS = TensorSpec(name="pixels", dtype="float32", shape=(4,))
SCORES = TensorSpec(name="scores", dtype="float32", shape=(3,))
fuzzed = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return pt2.sound(tmp_path / "net.pt2")


def test_a_sound_archive_says_what_it_is(archive: Path) -> None:
    assert check_archive(archive) == ArchiveInfo(
        inputs=(PIXELS,),
        outputs=(SCORES,),
        opset=models.OPSET,
        parameters=12,
        size_bytes=archive.stat().st_size,
        torch="2.13.0+cpu",
    )


def test_its_onnx_comes_out_as_it_went_in(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    extract_onnx(archive, target)
    assert target.read_bytes() == models.model().SerializeToString()


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (ArchiveLimits(size_mib=0.001), "net.pt2 has {size} MiB, more than the 0.001 allowed"),
        (ArchiveLimits(members=5), "net.pt2 has 12 members, more than the 5 allowed"),
        (ArchiveLimits(depth=4), "net.pt2/models/model.json is nested too deeply"),
        (
            ArchiveLimits(json_mib=0.001),
            "net.pt2/models/model.json has {size} MiB, more than the 0.001 allowed",
        ),
        (
            ArchiveLimits(onnx=OnnxLimits(nodes=1)),
            "net.pt2/models/model.json has 2 nodes, more than the 1 allowed",
        ),
        (
            ArchiveLimits(onnx=OnnxLimits(size_mib=0.0001)),
            "net.pt2/modelless/model.onnx has {size} MiB, more than the 0.0001 allowed",
        ),
    ],
)
def test_limits_are_kept(archive: Path, limits: ArchiveLimits, sentence: str) -> None:
    with pytest.raises(InvalidArtifact) as refusal:
        check_archive(archive, limits=limits)
    said = re.sub(r"has (0\.0*[1-9]\d*) MiB", "has {size} MiB", refusal.value.message)
    assert said == sentence


def test_members_may_say_their_sizes_in_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as file:
        for name, data in pt2.members().items():
            with file.open(zipfile.ZipInfo(pt2.ROOT + name), "w", force_zip64=True) as member:
                member.write(data)
    assert check_archive(path).parameters == 12


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the client's helper makes of a network with everything that an archive may hold."""
    torch = pytest.importorskip("torch")
    from torch import nn

    from controlplane.client.exporting.export import export

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(1, 4, 3, padding=1)
            self.normalised = nn.BatchNorm2d(4)
            self.last = nn.Linear(4 * 16, 3)
            self.register_buffer("scale", torch.ones(3), persistent=False)
            self.shift = torch.tensor([1.0, 2.0, 3.0])

        def forward(self, image: Any, factor: Any) -> Any:
            x = torch.relu(self.normalised(self.convolution(image)))
            x = nn.functional.max_pool2d(x, 2).flatten(1)
            return torch.softmax(self.last(x) * self.scale + self.shift, 1) * factor

    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    torch.manual_seed(0)
    export(Net(), (torch.rand(4, 1, 8, 8), torch.rand(4, 3)), path)
    return path


def test_what_the_client_exports_is_sound(exported: Path) -> None:
    info = check_archive(exported)
    assert info.inputs == (
        TensorSpec(name="image", dtype="float32", shape=(1, 8, 8)),
        TensorSpec(name="factor", dtype="float32", shape=(3,)),
    )
    assert info.outputs == (SCORES,)
    # Convolution, normalisation with its counter, linear layer, and two of three numbers.
    assert info.parameters == (36 + 4) + (4 * 4 + 1) + (64 * 3 + 3) + 3 + 3


def test_the_reader_of_zip_files_sees_what_zipfile_sees(exported: Path) -> None:
    with zipfile.ZipFile(exported) as file:
        seen = {name: file.read(name) for name in file.namelist()}
    members = read_layout(exported, max_members=100)
    assert {n: b"".join(pieces(exported, member)) for n, member in members.items()} == seen


def test_torch_reads_the_sound_archive_and_answers_as_its_onnx(archive: Path) -> None:
    torch = pytest.importorskip("torch")
    from controlplane.client.exporting.tracing import quiet_torch

    rows = models.rows()["pixels"]
    with quiet_torch():
        program = torch.export.load(archive).module()
    with torch.no_grad():
        (scores,) = program(torch.from_numpy(rows))
    product = rows @ models.WEIGHT
    wanted = np.exp(product) / np.exp(product).sum(1, keepdims=True)
    assert np.allclose(scores.numpy(), wanted, atol=1e-6)


def test_the_schema_is_that_of_the_torch_that_is_installed() -> None:
    torch = pytest.importorskip("torch")
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    assert SCHEMA_VERSION == SCHEMA
    sizes = {int(kind): dtype.itemsize for kind, dtype in _SERIALIZE_TO_TORCH_DTYPE.items()}
    assert sizes == {kind: ITEM_BYTES[kind] for kind in sizes}
    assert set(sizes) <= set(ITEM_BYTES)
    assert torch.__version__.startswith("2.13")


def test_a_damaged_member_of_which_nothing_is_made_is_refused(tmp_path: Path) -> None:
    """Other readers would find it damaged."""
    path = pt2.sound(tmp_path / "damaged.pt2")
    data = bytearray(path.read_bytes())
    data[data.index(b"0" * 40)] = ord("1")
    path.write_bytes(data)
    said = refusal_of(lambda: check_archive(path))
    assert said is not None
    assert said.startswith("damaged.pt2")
    assert "serialization_id" in said


@fuzzed
@given(
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    length=st.one_of(st.just(1.0), st.floats(0.0, 1.0)),
)
def test_any_archive_is_sound_or_refused(
    tmp_path: Path, edits: list[tuple[int, int]], length: float
) -> None:
    data = bytearray(pt2.sound(tmp_path / "right.pt2").read_bytes())
    for position, value in edits:
        data[position % len(data)] = value
    path = tmp_path / "fuzzed.pt2"
    path.write_bytes(data[: max(1, int(len(data) * length))])
    said = refusal_of(lambda: check_archive(path))
    if said is not None:
        assert said.startswith("fuzzed.pt2")
        assert said.isprintable()
        return
    # What is left to change are dates and versions: every reader sees the same members.
    assert check_archive(path).parameters == 12
    with zipfile.ZipFile(path) as file:
        seen = {name.removeprefix(pt2.ROOT): file.read(name) for name in file.namelist()}
    assert seen == pt2.members()


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
        st.sampled_from(["torch.os.system", "Symbol('s0')", "as_int", "weight", "../x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values within a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


PROGRAM = pt2.program()
PLACES = sorted(places(PROGRAM), key=str)


@settings(fuzzed, max_examples=75)
@given(place=st.sampled_from(PLACES), value=json_values)
def test_any_program_is_sound_or_refused(place: tuple[Any, ...], value: Any) -> None:
    document = copy.deepcopy(PROGRAM)
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    data = json.dumps(document).encode()
    said = refusal_of(lambda: check_program(data, where="x", max_depth=64, max_nodes=100))
    assert said is None or (said.startswith(("x ", "x: ")) and said.isprintable())
