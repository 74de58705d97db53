"""Models that are not registered as their files are: with weights that lie beside them, and with
other inputs and outputs where that was asked for."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from controlplane.building.types import RegistrationLimits
from profiler.sandbox.sandbox import Sandbox, SandboxLimits
from variants.checks.edges import Edges
from variants.checks.onnx_parts import has_parts
from variants.errors import InvalidInput
from variants.model_files import ModelFile


def with_weights(
    files: Sequence[ModelFile], folder: Path, limits: RegistrationLimits
) -> list[ModelFile]:
    """The same files; of those whose weights lie beside them, one file of both in ``folder``.

    Raises:
        InvalidArtifact: a file cannot be read, or weights are not where it says.
    """
    joined: list[ModelFile] = []
    allowed = SandboxLimits(memory_mib=limits.trial_mib, time_s=limits.trial_s)
    for number, file in enumerate(files):
        if file.path.suffix != ".onnx" or not has_parts(file.path):
            joined.append(file)
            continue
        target = folder / f"joined-{number}" / file.path.name
        target.parent.mkdir()
        given = {"path": str(file.path), "target": str(target), "size_mib": limits.model_mib}
        with Sandbox(allowed) as sandbox:
            sandbox.call("join", given, subject=file.model)
        joined.append(replace(file, path=target))
    return joined


def with_edges(
    files: Sequence[ModelFile], edges: Edges, folder: Path, limits: RegistrationLimits
) -> list[ModelFile]:
    """The same files, changed and written into ``folder``: what is registered are these bytes.

    Raises:
        InvalidArtifact: a file cannot be read, or what is asked cannot be done to it.
        InvalidInput: names are wrong, or a file is no ONNX file.
    """
    changed: list[ModelFile] = []
    allowed = SandboxLimits(memory_mib=limits.trial_mib, time_s=limits.trial_s)
    for number, file in enumerate(files):
        if file.path.suffix != ".onnx":
            raise InvalidInput(
                f"{file.path.name}: only inputs and outputs of ONNX files can be changed;"
                " modelless.export names those of an archive by input_names and output_names"
            )
        target = folder / str(number) / file.path.name
        target.parent.mkdir()
        with Sandbox(allowed) as sandbox:
            sandbox.call(
                "change",
                {
                    "path": str(file.path),
                    "target": str(target),
                    "edges": asdict(edges),
                    "size_mib": limits.model_mib,
                },
                subject=file.model,
            )
        changed.append(replace(file, path=target))
    return changed
