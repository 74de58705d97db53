"""Deployments that several end-to-end tests share; the family is trained and measured once."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from controlplane.examples import ensure_digits
from controlplane.settings import load_settings
from tests.integration.deployment import Deployment, deployed, short_directory
from tests.integration.digits import Rows
from tests.zoo_cache import digits_folder
from variants.sql import open_catalog
from variants.store import FileArtifactStore


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
def registered(family: Path) -> Iterator[Path]:
    """A state directory with the family registered: catalog and artifacts, nothing else."""
    with short_directory() as home:
        shutil.copytree(family, home / "zoo" / "digits")
        settings = load_settings(state_dir=home)
        with closing(open_catalog(settings.catalog_url)) as catalog:
            ensure_digits(settings, catalog, FileArtifactStore(settings.artifacts_dir))
        yield home


@pytest.fixture(scope="module")
def state(registered: Path) -> Iterator[Path]:
    """A copy of that state directory, for one module's deployments."""
    with short_directory() as home:
        shutil.copytree(registered, home / "s")
        yield home / "s"


@pytest.fixture(scope="module")
def digits(state: Path) -> Iterator[Deployment]:
    """One worker with all cores, embedded Valkey, SQLite."""
    with deployed(state, arguments=["--example", "digits"]) as running:
        yield running
