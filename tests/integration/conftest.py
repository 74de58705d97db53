"""Deployments that several end-to-end tests share; the family is trained and measured once."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from controlplane.examples import ensure_digits
from controlplane.registration import Progress
from controlplane.settings import load_settings
from tests.integration.deployment import Deployment, deployed, short_directory
from tests.integration.digits import Rows
from tests.zoo_cache import digits_folder
from variants.sql import open_catalog
from variants.store import FileArtifactStore


class Registered(NamedTuple):
    """A state directory with the family registered, and how that went."""

    home: Path
    """Catalog and artifacts, nothing else."""
    told: list[Progress]
    imported: set[str]
    """Modules that it took."""


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
def registered(family: Path) -> Iterator[Registered]:
    """The family, registered as ``up --example digits`` does it."""
    told: list[Progress] = []
    before = set(sys.modules)  # other tests of this run may need torch
    with short_directory() as home:
        shutil.copytree(family, home / "zoo" / "digits")
        settings = load_settings(state_dir=home)
        with closing(open_catalog(settings.catalog_url)) as catalog:
            store = FileArtifactStore(settings.artifacts_dir)
            ensure_digits(settings, catalog, store, told.append)
        yield Registered(home, told, set(sys.modules) - before)


@pytest.fixture(scope="module")
def state(registered: Registered) -> Iterator[Path]:
    """A copy of that state directory, for one module's deployments."""
    with short_directory() as home:
        shutil.copytree(registered.home, home / "s")
        yield home / "s"


@pytest.fixture(scope="module")
def digits(state: Path) -> Iterator[Deployment]:
    """One worker with all cores, embedded Valkey, SQLite."""
    with deployed(state, arguments=["--example", "digits"]) as running:
        yield running
