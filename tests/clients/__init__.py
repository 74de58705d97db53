"""Clients that others wrote, each in an environment of its own, so that its pins do not touch ours.

``make clients`` installs them into ``.clients``: one folder for each ``*.txt`` here. The sessions
(``*_session.py``) are run by these environments and import nothing of ours.
"""

from pathlib import Path

from tests.services import missing

INSTALLED = Path(__file__).parents[2] / ".clients"


def program(environment: str, name: str) -> Path:
    """A program of a client's environment; where there is none, the test skips, and fails in CI."""
    path = INSTALLED / environment / "bin" / name
    if not path.exists():
        missing(f"{name} of {environment}", "is not there (`make clients` installs it)")
    return path


def libraries(environment: str) -> str:
    """Where a client's wheels keep shared libraries, as a search path."""
    return ":".join(map(str, (INSTALLED / environment).glob("lib/*/site-packages/nvidia/*/lib")))
