"""Checks of this installation: Python, the packages, torch."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from controlplane.settings import Settings
from controlplane.startup.checks.finding import Finding, fine, problem

PYTHON = (3, 11)


PACKAGES = ("ray", "onnxruntime", "onnx", "ortools", "sklearn", "uvloop", "httptools")
"""What is imported by name, and may be broken though it is installed."""


DISTRIBUTIONS = {"sklearn": "scikit-learn"}


IMPORT_S = 60.0


def python(_: Settings) -> Iterator[Finding]:
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= PYTHON:
        yield fine("python", have)
    else:
        needed = ".".join(map(str, PYTHON))
        yield problem("python", have, f"use Python {needed} or newer")


def packages(_: Settings, names: tuple[str, ...] = PACKAGES) -> Iterator[Finding]:
    """One finding for all that are fine, and one for each that is not."""
    with ThreadPoolExecutor(4) as pool:
        faults = dict(zip(names, pool.map(import_fault, names), strict=True))
    good = [f"{name} {version_of(name)}" for name in names if not faults[name]]
    if good:
        yield fine("packages", ", ".join(good))
    for name in names:
        if faults[name]:
            yield problem(
                "packages",
                f"{name} cannot be imported: {faults[name]}",
                "install modelless again, in a virtual environment of its own",
            )


def torch(_: Settings) -> Iterator[Finding]:
    """Optional: only the example models and PyTorch sources need it."""
    if find_spec("torch") is None:
        yield fine("torch", "not installed; needed only to train the example models")
    else:
        yield fine("torch", version_of("torch"))


def import_fault(name: str) -> str:
    """Why a package cannot be imported; empty when it can."""
    if find_spec(name) is None:
        return "it is not installed"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import {name}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {IMPORT_S:,g} s"
    if ran.returncode == 0:
        return ""
    lines = ran.stderr.strip().splitlines()
    return lines[-1] if lines else f"the import ended with status {ran.returncode}"


def version_of(name: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(name, name))
    except PackageNotFoundError:
        return "of unknown version"
