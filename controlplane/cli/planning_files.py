"""The options that name planning files, the same for every command that reads them."""

from pathlib import Path
from typing import Annotated

import typer

CatalogOption = Annotated[
    Path,
    typer.Option(
        "--catalog", metavar="FILE", help="Variants and their latency per device kind, as CSV."
    ),
]
DevicesOption = Annotated[
    Path,
    typer.Option(
        "--devices", metavar="FILE", help="Device kinds: count, memory and price, as CSV."
    ),
]
