"""Deployments that several end-to-end tests share; the family is trained and measured once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Deployment, deployed, short_directory
from tests.zoo_cache import digits_folder


@pytest.fixture(scope="session")
def family() -> Path:
    """The digits family, trained: the folder where an installation keeps it."""
    return digits_folder()


@pytest.fixture(scope="session")
def state(family: Path) -> Iterator[Path]:
    """A state directory on which ``up --example digits`` finds the family trained.

    The first deployment registers it there; those that follow find it registered.
    """
    with short_directory() as home:
        made = home / "s"
        shutil.copytree(family, made / "zoo" / "digits")
        yield made


@pytest.fixture(scope="module")
def digits(state: Path) -> Iterator[Deployment]:
    """One worker with all cores, embedded Valkey, SQLite."""
    with deployed(state, arguments=["--example", "digits"]) as running:
        yield running
