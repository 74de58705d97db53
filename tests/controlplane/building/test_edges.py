"""Models that are registered in another form than their files have."""

from pathlib import Path

import pytest

from controlplane.building import edges
from controlplane.building.edges import in_plain_form
from profiler.sandbox.limits import SandboxLimits
from profiler.sandbox.sandbox import Sandbox
from tests import onnx_models as models
from tests.controlplane.registry.house import QUICK
from variants.model_files import ModelFile
from variants.types import ModelName

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def test_a_model_that_does_not_end_is_not_run_for_long_to_find_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edges, "SIZES_S", 0.5)
    monkeypatch.setattr(edges, "may_be_unusual", lambda path: True)
    given_s: list[float] = []

    def limited(limits: SandboxLimits) -> Sandbox:
        given_s.append(limits.time_s)
        return Sandbox(limits)

    monkeypatch.setattr(edges, "Sandbox", limited)
    path = models.write(tmp_path / "endless.onnx", models.endless(squeezes=True))
    file = ModelFile(model=ModelName("endless"), version=None, path=path)
    # It stays as it is, and is refused where it is judged.
    assert in_plain_form([file], tmp_path, QUICK) == [file]
    assert given_s == [QUICK.trial.time_s, 0.5]
