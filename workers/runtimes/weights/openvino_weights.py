"""Weights that OpenVINO maps from the file while it compiles a model, and then are its own.

OpenVINO reads a file as ONNX Runtime does: weights are there twice until the model is made
(docs/decisions/0015). What is said to lie in another file it maps. So it is given the model without
its weights (``workers.runtimes.weights.mappable``).

It takes a model that is no file to lie in the working directory, and refuses weights that lie
outside of that. So it is read by a thread that has left for the root: working directories are of
the process, unless a thread has asked for one of its own (``unshare(2)``, ``CLONE_FS``). Where a
container forbids that, the file is read as before.
"""

import ctypes
import io
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from workers.runtimes.weights.mappable import light_model, mappable
from workers.runtimes.weights.mapped_file import own_pages

CLONE_FS = 0x200


def mapped_model(reader: Any, path: str, make: Callable[[Any], Any]) -> Any:
    """What ``make`` makes of the model of an ONNX file, by OpenVINO's reader of such files.

    Raises:
        Exception: what OpenVINO raises where it refuses the model.
    """
    with mappable(path) as file:
        model = None if file is None else _read(reader, file)
        if file is None or model is None:
            return make(reader.convert(reader.load(path)))
        made = make(model)
        del model  # what it has of the file and the other has not leaves with it
        own_pages(file)
        return made


def _read(reader: Any, file: Path) -> Any:
    light = io.BytesIO(light_model(file, str(file)))
    return _at_root(lambda: reader.convert(reader.load(light, True)))


def _at_root(read: Callable[[], Any]) -> Any:
    """What a thread finds that has the root for its working directory; None where none may, or
    where reading fails, which is tried again and told then."""
    found: list[Any] = []

    def go() -> None:
        try:
            if ctypes.CDLL(None).unshare(CLONE_FS) == 0:
                os.chdir("/")
                found.append(read())
        except Exception:  # a C library without it; and the binding raises RuntimeError for all
            return

    thread = Thread(target=go, name="openvino-read")
    thread.start()
    thread.join()
    return found[0] if found else None
