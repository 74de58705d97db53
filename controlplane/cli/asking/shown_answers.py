"""Answers as lines for a terminal: labels with scores, of texts beside the words, else numbers."""

from collections.abc import Mapping, Sequence
from typing import Any


def answer_lines(reply: Mapping[str, Any], texts: Sequence[Any] = ()) -> list[tuple[str, str]]:
    """What an answer says, each with what it is called.

    Args:
        texts: that were asked, or pairs of them.
    """
    labels = reply.get("labels")
    if not labels:
        return output_lines(reply["outputs"])
    scores = reply.get("scores") or [None] * len(labels)
    if not isinstance(labels[0], list):
        return [("label", label_words(labels, scores))]
    spans = reply.get("spans")  # of each position
    if spans and len(spans) == len(texts):
        labels = list(map(_beside_words, labels, spans, texts))
        kept = [[at for at, one in enumerate(row) if one] for row in labels]
        labels = [[row[at] for at in of] for row, of in zip(labels, kept, strict=True)]
        scores = [row and [row[at] for at in of] for row, of in zip(scores, kept, strict=True)]
    rows = list(map(label_words, labels, scores))
    more = [f"... {len(rows) - SHOWN_ROWS} more rows"] if len(rows) > SHOWN_ROWS else []
    return [("labels", "\n".join([*rows[:SHOWN_ROWS], *more]))]


def _beside_words(labels: Sequence[str], spans: Sequence[Sequence[int]], text: Any) -> list[str]:
    """Labels behind the tokens that they are of; empty for tokens that stand for no part of a
    text."""
    parts = [text] if isinstance(text, str) else text
    found = []
    for label, (begin, end, *of) in zip(labels, spans, strict=True):
        word = parts[of[0] if of else 0][begin:end]
        found.append(f"{word} {label}" if word else "")
    return found


def label_words(labels: Sequence[str], scores: Sequence[float | None] | None) -> str:
    """The first of some labels, with their scores where these are known."""
    known = scores or [None] * len(labels)
    texts = [
        label if score is None else f"{label} ({score:.4g})"
        for label, score in zip(labels, known, strict=True)
    ]
    return ", ".join(texts[:SHOWN_LABELS]) + (", ..." if len(texts) > SHOWN_LABELS else "")


SHOWN_LABELS = 20
SHOWN_ROWS = 20
SHOWN_NUMBERS = 8
"""Numbers of an axis that are shown; of a longer one the first ones and its length."""


def output_lines(outputs: Any) -> list[tuple[str, str]]:
    """Names and values of an answer without labels, each row on a line of its own."""
    if not isinstance(outputs, Mapping):
        outputs = {"outputs": outputs}
    lines = []
    for name, rows in outputs.items():
        shown = [short_numbers(row) for row in rows[:SHOWN_ROWS]]
        more = [f"... {len(rows) - SHOWN_ROWS} more rows"] if len(rows) > SHOWN_ROWS else []
        lines.append((name, "\n".join([*shown, *more])))
    return lines


def short_numbers(value: Any) -> str:
    """A row of an output: ``152.4``, ``[0.1, 2.5]``, ``[0.02, -1.5, ... 64 numbers]``."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if not isinstance(value, list):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if len(value) == 1:
        return short_numbers(value[0])
    texts = [short_numbers(each) for each in value[:SHOWN_NUMBERS]]
    if len(value) > SHOWN_NUMBERS:
        kind = "rows" if isinstance(value[0], list) else "numbers"
        texts.append(f"... {len(value)} {kind}")
    return f"[{', '.join(texts)}]"
