"""What cannot be undone, or leaves queries unanswered, is asked before, and said after."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controlplane.cli.render import printable
from variants.errors import InvalidInput
from variants.figures import counted

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def confirm(
    question: str,
    yes: bool,
    *,
    because: str = "it cannot be undone",
    refused: str = "nothing was removed",
) -> None:
    """Go on only if it is wanted; ``yes`` says so without asking.

    Args:
        because: why it is asked.
        refused: what a no means.

    Raises:
        InvalidInput: the answer is no, or nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{because}, and nobody can be asked here; --yes says so")
    if not typer.confirm(printable(f"{question} {because[:1].upper()}{because[1:]}."), err=True):
        raise InvalidInput(refused)


def removed_words(row: Mapping[str, Any]) -> str:
    """What was removed: ``2 versions, 3 variants; of 5 artifacts those are deleted that ...``."""
    said = f"{counted(len(row['versions']), 'version')}, {counted(len(row['variants']), 'variant')}"
    if row["peaks"]:
        said += f", {counted(row['peaks'], 'declared peak')}"
    if not row["artifacts"]:
        return said
    artifacts = counted(row["artifacts"], "artifact")
    return f"{said}; of {artifacts} those are deleted that nothing else uses"
