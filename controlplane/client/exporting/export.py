"""``modelless.export``: from a trained model in the user's process to a file to hand in."""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controlplane.client.exporting.exported import Exported, ExportError


def export(
    model: Any,
    example_inputs: Any,
    path: str | os.PathLike[str],
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Exported:
    """Write a model as a file that ``modelless register`` takes, once it answers as the model does.

    - A ``torch.nn.Module`` becomes a ``.pt2`` file: a ``torch.export`` archive with the same model
      as ONNX inside. It is exported in evaluation mode and left as it was. ``example_inputs`` are a
      tensor, a tuple of them, or a dictionary from the names of forward's arguments; their first
      axis is the batch. Inputs are called after forward's arguments; outputs after the keys of the
      dictionary that forward returns, else ``scores``, ``output_1``, ... The module ends in scores
      or in probabilities, as you like: whether there is a softmax is up to you.
    - A fitted scikit-learn classifier, or a pipeline that ends in one, becomes an ``.onnx`` file.
      ``example_inputs`` are rows, ``(rows, features)``; its input ``features`` is float32, and its
      one output ``scores`` holds probabilities, or decision scores where the classifier has no
      probabilities. The names of the classes are in the result. An outlier detector, such as
      ``IsolationForest``, is a classifier of -1 (outliers) and 1. One that gives several labels to
      a row has their probabilities as ``values``, as below.
    - A fitted scikit-learn regressor, or a transformer such as ``PCA``, or a pipeline that ends in
      one, becomes an ``.onnx`` file too. Its one output ``values`` is float32, ``(rows, numbers)``:
      what ``predict`` or ``transform`` gives.

    Some of the examples are answered by both the model and the file, and the file replaces ``path``
    only if the answers are the same.

    Raises:
        ExportError: the model cannot be served as it is, or ``path`` has the wrong suffix; the
            sentence says why.
        OSError: ``path`` cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    if _is_one_of(model, "torch.nn", "Module"):
        _check_suffix(target, ".pt2", "a PyTorch module")
        from controlplane.client.exporting.torch_archive import export_module

        return export_module(model, example_inputs, target, input_names, output_names)
    if _is_one_of(model, "sklearn.base", "BaseEstimator"):
        _check_suffix(target, ".onnx", "a scikit-learn model")
        from controlplane.client.exporting.sklearn_onnx import export_classifier, gives_one_class
        from controlplane.client.exporting.sklearn_values import export_values

        if gives_one_class(model, example_inputs):
            return export_classifier(model, example_inputs, target, input_names, output_names)
        return export_values(model, example_inputs, target, input_names, output_names)
    kind = type(model).__name__
    article = "an" if kind[0] in "AEIOUaeiou" else "a"
    raise ExportError(
        f"{article} {kind} cannot be exported; give a torch.nn.Module, or a fitted"
        " classifier, regressor or transformer of scikit-learn"
    )


def _is_one_of(model: Any, module: str, name: str) -> bool:
    """Whether a model is of a library's class; without the library loaded, nothing can be."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(model, kind)


def _check_suffix(path: Path, suffix: str, what: str) -> None:
    if path.suffix != suffix:
        raise ExportError(f"{path.name}: {what} is exported to a file that ends in {suffix}")
