"""The options of commands that plan from files, the same for each of them."""

from pathlib import Path
from typing import Annotated

import typer

from planner.types import Objective

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
ObjectiveOption = Annotated[
    Objective, typer.Option("--objective", help="Least cost, most accuracy, or least energy.")
]
