"""The settings of commands that work on a state directory, and the option that names it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from controlplane.settings import Settings, load_settings

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
