"""PyTorch modules as archives, by torch's own exporter."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from variants.types import TensorSpec


def save_archive(
    path: Path,
    module: Any,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    says: bool = True,
) -> Path:
    """Save a module; ``says``: with the names of its inputs and outputs inside."""
    import torch

    from controlplane.client.exporting.functional import functional

    rows = torch.export.Dim("batch")
    example = tuple(
        torch.zeros(3, *spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = functional(
            torch.export.export(
                module.eval(), example, dynamic_shapes=tuple({0: rows} for _ in example)
            )
        )
    said = {
        "inputs": [{"name": spec.name} for spec in inputs],
        "outputs": [{"name": spec.name} for spec in outputs],
    }
    extra = {"modelless.json": json.dumps(said)} if says else None
    torch.export.save(program, path, extra_files=extra)
    return path
