"""The settings of commands that work on a state directory, and the option that names it."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import orjson
import typer

from controlplane.given_settings import PREFIX
from controlplane.settings import LOCAL, SECRETS, Settings, known_names, load_settings, names_given
from controlplane.startup.presence import running
from variants.errors import NotFound

StateDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="State directory; else MODELLESS_STATE_DIR or ~/.modelless."),
]


GIVEN = "given.json"
"""In the run directory: what was given to what runs by the environment of the command."""


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


def given_here() -> dict[str, str]:
    """Settings in the environment of this command that replicas go by, as they stand there; none
    that is secret, or of one machine alone."""
    named = {name.upper(): value for name, value in os.environ.items()}
    others = {f"{PREFIX}{name.upper()}" for name in (*SECRETS, *LOCAL, "state_dir")}
    return {name: named[name] for name in sorted((known_names() & named.keys()) - others)}


def note_given(settings: Settings, given: Mapping[str, str]) -> None:
    """Write down what was given by an environment to what runs here, for the next command that
    replaces it, whose shell may know nothing of it."""
    path = settings.run_dir / GIVEN
    fresh = path.with_suffix(".new")
    fresh.write_bytes(orjson.dumps(dict(given)))
    fresh.replace(path)


def given_before(settings: Settings, but: Collection[str] = ()) -> dict[str, str]:
    """What was noted so and is said neither here nor in the file, but for settings of these names.

    What this release does not know any more is left out.
    """
    try:
        noted = orjson.loads((settings.run_dir / GIVEN).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    said = {name.upper() for names in names_given(settings.state_dir).values() for name in names}
    left = {f"{PREFIX}{name.upper()}" for name in but} | said
    return {
        name: str(value)
        for name, value in (noted.items() if isinstance(noted, dict) else ())
        if name in known_names() - left
    }


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
