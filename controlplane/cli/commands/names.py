"""Names as arguments of commands, and numbers of versions."""

from typing import Annotated

import typer

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")]
AnyTaskArgument = Annotated[
    str | None, typer.Argument(metavar="TASK", help="Name of a task; else all tasks.")
]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model.")]
VersionArgument = Annotated[
    int, typer.Argument(metavar="VERSION", min=1, help="Number of a version.")
]
NewestArgument = Annotated[
    int | None,
    typer.Argument(metavar="VERSION", min=1, help="Number of a version; else the newest."),
]
VariantArgument = Annotated[str, typer.Argument(metavar="VARIANT", help="Name of a variant.")]
WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Name of a worker.")]
