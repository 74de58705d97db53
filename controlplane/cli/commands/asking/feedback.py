"""``feedback``: say which classes of an answer were right."""

from typing import Annotated

import typer

from controlplane.cli.gateway_client import UrlOption, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import printable


def feedback(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST_ID", help="The X-Request-Id that the answer carried.")
    ],
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS", help="The right class of each row.")
    ],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say which classes were right, of an answer of the last minutes.

    It counts for the live accuracy of the variant that had answered, and for or against a canary.

    \b
    modelless feedback 0f8a3c52e1b74d96 7
    modelless feedback 0f8a3c52e1b74d96 leaves stays
    """
    with connect(url) as client:
        row = client.post("/v1/feedback", {"request_id": request_id, "labels": labels})
    rows = row["right"] + row["wrong"]
    words = f"{row['variant']} had {row['right']:,} of {rows:,} right"
    if not row["anew"]:
        words += ", as was said before"
    emit(row, output, lambda: typer.echo(printable(words)))
