"""Who gives an order, and why, as the command line says it."""

import getpass
import socket
from typing import Annotated

import typer

from variants.catalog.validity.rules import MOST_BY

WhyOption = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason, shown beside it.")
]


def operator() -> str:
    """The user of this process and its machine: ``ann@build-2``. Nobody checks it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have
        name = "somebody"
    told = f"{name}@{socket.gethostname()}"
    return "".join(sign for sign in told if sign.isprintable())[:MOST_BY]
