"""Deployments that several end-to-end tests share; the family is trained and measured once."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Deployment, deployed, short_directory


@pytest.fixture(scope="session")
def family() -> Iterator[Path]:
    """The digits family, trained: the folder where an installation keeps it."""
    with short_directory() as home:
        out = home / "digits"
        subprocess.run(
            [sys.executable, "-m", "variants.zoo.digits", "--out", str(out)],
            check=True,
            timeout=300,
            stdout=subprocess.DEVNULL,
        )
        yield out


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
