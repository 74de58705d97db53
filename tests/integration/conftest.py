"""State directories for end-to-end tests; the family is trained and measured once."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from controlplane.machine import machine_kinds
from controlplane.profiling.due.profiles import due_profiles
from controlplane.settings import load_settings
from tests.integration.deployment import short_directory
from tests.integration.digits import Rows
from tests.integration.registering import registered_in_a_child
from tests.machine_cache import digits_folder
from variants.catalog.sql import open_catalog


class Registered(NamedTuple):
    """A state directory with the family registered, and how that went."""

    home: Path
    """Catalog and artifacts, nothing else."""
    halves: Path
    """The same, with profiles for two workers as well."""
    done: list[int]
    """What progress was told, step by step."""
    imported_torch: bool


@pytest.fixture(scope="session")
def family() -> Path:
    """The digits family, trained: the folder where an installation keeps it."""
    return digits_folder()


@pytest.fixture(scope="session")
def held_out(family: Path) -> tuple[Rows, list[int]]:
    """The rows that the catalog's accuracies were measured on, and their labels."""
    data = np.load(family / "evaluation.npz")
    return data["pixels"].tolist(), data["labels"].tolist()


@pytest.fixture(scope="session")
def registered(family: Path, tmp_path_factory: pytest.TempPathFactory) -> Registered:
    """The family, registered as ``up --example digits`` does it: once for all test processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    home, told = shared / "registered", shared / "registered.json"
    with (shared / "registered.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            told.write_text(registered_in_a_child(family, home))
            shutil.copytree(home, shared / "halves")
            _add_halves(shared / "halves")
    return Registered(home, shared / "halves", *json.loads(told.read_text()))


def _add_halves(home: Path) -> None:
    """Profiles for workers of half the machine: what was measured, taken to be twice as slow.

    One variant, the quickest, is left for ``up`` to measure.
    """
    settings = load_settings(state_dir=home, workers=2)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        measured = {(p.task, p.variant): p for p in catalog.snapshot().profiles}
        due = due_profiles(catalog.snapshot(), machine_kinds(settings))
        due = sorted(due, key=lambda one: measured[one.variant.key].points[0].p50_ms)
        for one in due[1:]:
            whole = measured[one.variant.key]
            points = tuple(
                replace(
                    point,
                    p50_ms=2 * point.p50_ms,
                    p95_ms=2 * point.p95_ms,
                    p99_ms=2 * point.p99_ms,
                )
                for point in whole.points
            )
            half = replace(whole, device_kind=one.kind.name, points=points)
            catalog.put_profiles((half,), (one.kind,))


@pytest.fixture(scope="module")
def state(registered: Registered) -> Iterator[Path]:
    """A copy of that state directory, for one module's deployments."""
    with short_directory() as home:
        shutil.copytree(registered.home, home / "s")
        yield home / "s"


@pytest.fixture(scope="module")
def halves(registered: Registered) -> Iterator[Path]:
    """A state directory for two workers."""
    with short_directory() as home:
        shutil.copytree(registered.halves, home / "s")
        yield home / "s"
