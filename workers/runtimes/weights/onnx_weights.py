"""Weights that ONNX Runtime maps from the file while a session is made, and then are its own.

Weights that it does not pack stay mapped. Answers would then depend on the file for as long as the
variant is loaded: whoever changes it changes them, and cutting it short ends the worker. So memory
with the same content takes their place once the session is there.
"""

from collections.abc import Sequence
from typing import Any

from workers.runtimes.weights.mappable import light_model, mappable
from workers.runtimes.weights.mapped_file import own_pages

FOLDER = "session.model_external_initializers_file_folder_path"


def mapped_session(
    ort: Any, path: str, options: Any, providers: Sequence[str], disabled: Sequence[str]
) -> Any:
    """An ``InferenceSession`` of a file, for the CPU.

    Args:
        disabled: optimisers that are left out.

    Raises:
        Exception: what ONNX Runtime raises where it refuses the model.
    """

    def session(model: str | bytes) -> Any:
        return ort.InferenceSession(
            model, options, providers=providers, disabled_optimizers=disabled
        )

    with mappable(path) as file:
        if file is None:
            return session(path)
        options.add_session_config_entry(FOLDER, f"{file.parent}/")
        made = session(light_model(file, file.name))
        own_pages(file)
        return made
