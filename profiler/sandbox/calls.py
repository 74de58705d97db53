"""Calls of a process to its child: arguments as plain JSON values, and how far a call is."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from variants.types import Digest, Task, TaskName, TensorSpec, Variant, VariantName
from workers.types import LoadSpec

Arguments = Mapping[str, Any]
"""Plain JSON values by name."""
Announce = Callable[[int, int], None]
"""Called with how much of the work is done, and with how much there is."""


def load_values(variant: Variant, task: Task, path: Path, device_kind: str = "") -> dict[str, Any]:
    """The plain JSON values from which ``load_spec`` makes a load spec."""
    return {
        "task": task.name,
        "variant": variant.name,
        "runtime": variant.runtime,
        "artifact": variant.artifact,
        "path": str(path),
        "inputs": [asdict(spec) for spec in task.inputs],
        "outputs": [asdict(spec) for spec in task.outputs],
        "options": list(variant.options.items()),
        "device_kind": device_kind,
    }


def load_spec(values: Mapping[str, Any]) -> LoadSpec:
    """A load spec from plain JSON values."""
    return LoadSpec(
        task=TaskName(values["task"]),
        variant=VariantName(values["variant"]),
        runtime=values["runtime"],
        artifact=Digest(values["artifact"]),
        path=values["path"],
        inputs=tensor_specs(values["inputs"]),
        outputs=tensor_specs(values["outputs"]),
        latency=(),
        memory_mib=0.0,
        load_s=0.0,
        options=tuple((str(name), str(value)) for name, value in values["options"]),
        device_kind=values.get("device_kind", ""),
    )


def tensor_specs(values: list[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Tensor specs from plain JSON values."""
    return tuple(
        TensorSpec(name=v["name"], dtype=v["dtype"], shape=tuple(v["shape"])) for v in values
    )
