"""The options of commands that ask for a task."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from controlplane.client.exchange import query_document
from variants.errors import InvalidInput
from variants.types import Prefer

AccuracyOption = Annotated[
    float | None,
    typer.Option("--accuracy", min=0, max=1, metavar="SHARE", help="Floor, from 0 to 1."),
]
CostOption = Annotated[
    float | None,
    typer.Option("--cost", min=0, metavar="USD", help="Ceiling, USD per 1,000 queries."),
]
PreferOption = Annotated[
    Prefer | None, typer.Option("--prefer", help="What to optimise among what fits.")
]
VariantOption = Annotated[
    str | None, typer.Option("--variant", metavar="VARIANT", help="Ask this variant and no other.")
]
ModelVersionOption = Annotated[
    str | None,
    typer.Option(
        "--model-version", metavar="VERSION", help="Ask this version of a model: encoder-v1."
    ),
]
TruncateOption = Annotated[
    bool, typer.Option("--truncate", help="Cut off texts that have too many tokens.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsOptions:
    """What a query asks for; what is not said is the task's default."""

    latency_ms: Annotated[
        float | None,
        typer.Option("--latency-ms", metavar="MS", min=0, help="Deadline, end to end."),
    ] = None
    accuracy: AccuracyOption = None
    cost: CostOption = None
    prefer: PreferOption = None
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Answer with the nearest when nothing fits.")
    ] = False
    variant: VariantOption = None
    model_version: ModelVersionOption = None
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            min=0,
            metavar="N",
            help="1 is refused last; without, or 0, it is 100.",
        ),
    ] = None

    def document(self, task: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a query, or of the question what would become of it (``query_document``)."""
        return query_document(task, about, **asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """Texts in place of rows."""

    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="A text in place of a row; may be repeated."),
    ] = None
    text_pair: Annotated[
        list[str] | None,
        typer.Option(
            "--text-pair",
            metavar="TEXT",
            help="A second text beside it, for models that read two; one for each --text.",
        ),
    ] = None
    truncate: TruncateOption = False

    def given(self) -> list[Any]:
        """Texts as a query has them: alone, or each with a second one; none where none are given.

        Raises:
            InvalidInput: there are not as many of both.
        """
        texts, seconds = self.text or [], self.text_pair or []
        if not seconds:
            return list(texts)
        if len(texts) != len(seconds):
            raise InvalidInput(
                f"--text and --text-pair go together: there are {len(texts)} and {len(seconds)}"
            )
        return [list(pair) for pair in zip(texts, seconds, strict=True)]
