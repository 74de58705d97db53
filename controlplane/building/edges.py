"""Models that are not registered as their files are: with weights that lie beside them, in a form
that can be served, and with other inputs and outputs where that was asked for."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from controlplane.building.types import RegistrationLimits
from profiler.sandbox.sandbox import Sandbox
from variants.checks.edges import Edges
from variants.checks.onnx_parts import has_parts
from variants.checks.onnx_plain import may_be_unusual
from variants.errors import InvalidArtifact, InvalidInput
from variants.model_files import ModelFile

SIZES_S = 60.0
"""How long a model may take for six rows, by which sizes of its outputs are found."""


def as_served(
    files: Sequence[ModelFile], edges: Edges, folder: Path, limits: RegistrationLimits
) -> tuple[ModelFile, ...]:
    """The same files in the form in which they are registered; those that change are written into
    ``folder``.

    Raises:
        InvalidArtifact: a file cannot be read, weights are missing, or what is asked cannot be done
            to it.
        InvalidInput: names are wrong, or inputs and outputs of a file that is no ONNX file are to
            be changed.
    """
    files = in_plain_form(with_weights(files, folder, limits), folder, limits)
    return tuple(with_edges(files, edges, folder, limits) if edges else files)


def with_weights(
    files: Sequence[ModelFile], folder: Path, limits: RegistrationLimits
) -> list[ModelFile]:
    """The same files; of those whose weights lie beside them, one file of both in ``folder``.

    Raises:
        InvalidArtifact: a file cannot be read, or weights are not where it says.
    """
    return [
        _rewritten("join", file, folder / f"joined-{number}", limits)
        if file.path.suffix == ".onnx" and has_parts(file.path)
        else file
        for number, file in enumerate(files)
    ]


def in_plain_form(
    files: Sequence[ModelFile], folder: Path, limits: RegistrationLimits
) -> list[ModelFile]:
    """The same files; of those that a converter has left in a form that cannot be served, one in
    ``folder`` that can.

    Raises:
        InvalidArtifact: a file cannot be read.
    """
    return [
        _rewritten("plain", file, folder / f"plain-{number}", limits)
        if file.path.suffix == ".onnx" and may_be_unusual(file.path)
        else file
        for number, file in enumerate(files)
    ]


def with_edges(
    files: Sequence[ModelFile], edges: Edges, folder: Path, limits: RegistrationLimits
) -> list[ModelFile]:
    """The same files, changed and written into ``folder``: what is registered are these bytes.

    Raises:
        InvalidArtifact: a file cannot be read, or what is asked cannot be done to it.
        InvalidInput: names are wrong, or a file is no ONNX file.
    """
    changed: list[ModelFile] = []
    for number, file in enumerate(files):
        if file.path.suffix != ".onnx":
            raise InvalidInput(
                f"{file.path.name}: only inputs and outputs of ONNX files can be changed;"
                " modelless.export names those of an archive by input_names and output_names"
            )
        own = folder / f"changed-{number}"
        made = _rewritten("change", file, own, limits, edges=asdict(edges))
        if edges.free_batch:
            _call("freed", made, limits)
        changed.append(made)
    return changed


def _rewritten(
    method: str, file: ModelFile, folder: Path, limits: RegistrationLimits, **further: Any
) -> ModelFile:
    """The file as a method of the sandbox writes it, in a new folder; itself if that wrote none."""
    folder.mkdir()
    target = folder / file.path.name
    found = _call(method, file, limits, target=str(target), **further)
    written = replace(file, path=target) if target.exists() else file
    if not found.get("unsaid"):
        return written
    # What does not run, or does not end, is refused where it is judged.
    with suppress(InvalidArtifact):
        _call(
            "sizes",
            written,
            replace(limits, trial=replace(limits.trial, time_s=min(limits.trial.time_s, SIZES_S))),
            target=str(target),
        )
    return replace(file, path=target) if target.exists() else file


def _call(
    method: str, file: ModelFile, limits: RegistrationLimits, **further: Any
) -> dict[str, Any]:
    """What a method of the sandbox says of a file, in a process of its own."""
    given = {"path": str(file.path), "size_mib": limits.model_mib}
    with Sandbox(limits.trial) as sandbox:
        return sandbox.call(method, given | further, subject=file.model)
