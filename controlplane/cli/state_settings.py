"""The settings of commands that work on a state directory, and the option that names it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from controlplane.settings import Settings, load_settings
from controlplane.startup.presence import running
from variants.errors import NotFound

StateDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="State directory; else MODELLESS_STATE_DIR or ~/.modelless."),
]


def read_settings(**given: object) -> Settings:
    """The settings, with what the command line gives in their place. That also goes into the
    environment, for the processes that are started from here."""
    for name, value in given.items():
        if value is not None:
            text = str(Path(str(value)).expanduser().resolve()) if name == "state_dir" else value
            os.environ[f"MODELLESS_{name.upper()}"] = str(text)
    settings = load_settings()
    os.environ["MODELLESS_STATE_DIR"] = str(settings.state_dir)
    return settings


def is_elsewhere(settings: Settings) -> bool:
    """Whether ``MODELLESS_URL`` names a gateway that does not serve the catalog of the settings, as
    far as is known: nothing runs on their state directory."""
    own = settings.catalog_url.startswith("sqlite") and running(settings) is None
    return bool(settings.url) and own


def installed(settings: Settings) -> Settings:
    """The settings, once it is known that they name an installation.

    For commands that look into the catalog by themselves: of an empty one they would say that all
    is well. Where they may mean another one than ``MODELLESS_URL`` names, that is said on standard
    error.

    Raises:
        NotFound: nothing was ever started or registered there.
    """
    elsewhere = is_elsewhere(settings)
    kept_there = not (settings.database_url or settings.artifacts_url)
    missing = kept_there and not (settings.state_dir / "catalog.db").exists()
    if missing and elsewhere:
        raise NotFound(
            f"there is no installation in {settings.state_dir}, and this command works on one's own"
            f" files: run it on the machine that {settings.url} (MODELLESS_URL) is on"
        )
    if missing:
        raise NotFound(
            f"there is no installation in {settings.state_dir}: MODELLESS_STATE_DIR names another"
            " directory"
        )
    if elsewhere:
        print(
            f"note: this is about {settings.state_dir}, not about {settings.url} (MODELLESS_URL)",
            file=sys.stderr,
        )
    return settings
