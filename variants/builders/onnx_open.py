"""A model for rows of several lengths as one file for all of them, so that they share its weights.

A bucket's model has one size along the axis that its rows differ in. Here that axis is open again:
the file is the same whatever bucket it is built for, is stored once, and a worker opens it once for
all buckets that it has loaded (``workers.runtimes.sharing``).
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.onnx_fp32 import simplify
from variants.builders.protocol import Built, Material, Needs
from variants.checks.open_axis import open_again
from variants.errors import VariantNotBuilt


class OnnxFp32Open(OnnxBuilder):
    """The model as it is, its axis left open; ONNX Runtime takes rows of any length then."""

    options: Mapping[str, str] = {"session": "shared"}
    needs = frozenset({Needs.LENGTHS})

    def build(self, material: Material, target: Path) -> Built:
        if material.bucket is None:
            raise VariantNotBuilt(f"needs {Needs.LENGTHS.value}")
        with TemporaryDirectory(dir=target.parent) as folder:
            opened = Path(folder) / "open.onnx"
            opened.write_bytes(open_again(material.source.read_bytes(), material.bucket))
            simplify(opened, target)
        return Built(note="for rows of any length, in one session with other lengths")
