"""The autoscaler of a Ray cluster as a process of this machine, and the file that it goes by.

It runs on the head, with a file where nodes come from a provider and without one elsewhere.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from controlplane.cluster.autoscaling.node_types import Autoscaler, autoscaler_of

NEWER = "autoscaler/v2/monitor.py"
OLDER = "autoscaler/_private/monitor.py"
CONTROL_STORE = "--gcs-address="
CONFIG = "--autoscaling-config="


def monitors() -> list[list[str]]:
    """The arguments of each such process."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            arguments = process.cmdline()
            if any(one.endswith((NEWER, OLDER)) for one in arguments[:4]):
                found.append(arguments)
    return found


def control_store_of(arguments: Sequence[str]) -> str:
    """The address of the cluster that one is for."""
    return _option(arguments, CONTROL_STORE)


def autoscaler_with(arguments: Sequence[str]) -> Autoscaler | None:
    """What one may start; None where it starts nothing.

    Nothing is known of the node types where its file cannot be read.
    """
    path = _option(arguments, CONFIG)
    if not path:
        return None
    newer = any(one.endswith(NEWER) for one in arguments[:4])
    try:
        file: Mapping[str, Any] = yaml.safe_load(Path(path).expanduser().read_text())
        return autoscaler_of(file, reads_labels=newer)
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):
        return Autoscaler(reads_labels=newer)


def _option(arguments: Sequence[str], name: str) -> str:
    return next((one.removeprefix(name) for one in arguments if one.startswith(name)), "")
