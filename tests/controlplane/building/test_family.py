"""Building the variants of one version: what is the same file is built once."""

from pathlib import Path

import pytest

from controlplane.building.build_cache import BuildCache
from controlplane.building.family import Building
from controlplane.building.meter import Meter
from controlplane.building.sources import Sources
from controlplane.building.types import Progress, RegistrationLimits
from profiler.sandbox.limits import SandboxLimits
from tests import onnx_models as models
from variants.types import Digest, ModelName, ModelVersion, Stage, TaskName

pytestmark = pytest.mark.slow

VERSION = ModelVersion(
    task=TaskName("shapes"),
    model=ModelName("tiny"),
    version=1,
    stage=Stage.LIVE,
    source=Digest("0" * 64),
)
LIMITS = RegistrationLimits(model_mib=1, trial=SandboxLimits(memory_mib=1_000, time_s=60))


def test_kinds_of_the_same_file_are_built_once(tmp_path: Path) -> None:
    told: list[Progress] = []
    sources = Sources(onnx=models.write(tmp_path / "tiny.onnx"), calibration=None)
    cache = BuildCache(tmp_path / "cache", 2**20)
    building = Building(VERSION, sources, tmp_path, LIMITS, cache)
    built, skipped = building.build(["onnx-fp32", "openvino-fp32"], Meter(told.append))
    assert skipped == []
    first, second = built
    assert (first.path, first.variant.artifact) == (second.path, second.variant.artifact)
    assert (first.variant.runtime, second.variant.runtime) == ("onnx", "openvino")
    assert [one.message for one in told] == [
        "building tiny-v1-onnx-fp32",
        "tiny-v1-openvino-fp32 has the file of tiny-v1-onnx-fp32",
    ]
    # What has its file is not built for itself either where it comes first another time.
    (alone,), _ = Building(VERSION, sources, tmp_path, LIMITS, cache).build(
        ["openvino-fp32"], Meter(told.append)
    )
    assert (alone.known, alone.variant.artifact) == (True, first.variant.artifact)
