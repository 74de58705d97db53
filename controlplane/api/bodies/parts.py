"""What several described bodies have in common."""

from typing import Any

from controlplane.files.fields import MAX_LATENCY_MS

MOST_LATENCY_MS = int(MAX_LATENCY_MS)
"""The longest deadline that a query may name."""

THREE = [
    int(grey)
    for row in (
        "0, 0, 7, 15, 13, 1, 0, 0",
        "0, 8, 13, 6, 15, 4, 0, 0",
        "0, 2, 1, 13, 13, 0, 0, 0",
        "0, 0, 2, 15, 11, 1, 0, 0",
        "0, 0, 0, 1, 12, 12, 1, 0",
        "0, 0, 0, 0, 1, 10, 8, 0",
        "0, 0, 8, 4, 5, 14, 9, 0",
        "0, 0, 7, 13, 13, 9, 0, 0",
    )
    for grey in row.split(", ")
]
"""A handwritten 3 of the example task: eight rows of eight grey values from 0 to 16."""


def json_content(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    """The content of a JSON body."""
    return {"application/json": {"schema": schema} | ({"example": example} if example else {})}


def _refused(code: str) -> dict[str, Any]:
    """A status that only queries answer with."""
    return {
        "description": code,
        "content": json_content({"$ref": "#/components/schemas/ErrorBody"}),
    }


REFUSALS = {"422": _refused("SLO_INFEASIBLE"), "504": _refused("DEADLINE_EXCEEDED")}

ANSWER_HEADERS: dict[str, Any] = {
    "X-Choice-Reason": {
        "description": "Why this variant was chosen: `planned`, `cheapest_that_fits`, `pinned`, "
        "`best_effort` and others.",
        "schema": {"type": "string"},
    },
    "X-Request-Id": {
        "description": "The caller's own, or one that was made: `POST /v1/feedback` takes it.",
        "schema": {"type": "string"},
    },
    "Cache-Status": {
        "description": "Of a task whose equal queries share answers: whether it was one of those.",
        "schema": {"type": "string"},
    },
    "X-Choice-Zone": {
        "description": "Where workers of several zones could be asked: where it was answered, and"
        " why there.",
        "schema": {"type": "string"},
    },
}

METADATA: dict[str, Any] = {
    "variant": {"type": "string", "description": "The variant that answered."},
    "model_version": {
        "type": "string",
        "description": "The version that the variant was made of.",
        "example": "cnn-small-v1",
    },
    "worker": {"type": "string", "description": "Where it ran."},
    "batch_size": {"type": "integer", "description": "Rows of the batch that it ran in."},
    "queue_ms": {"type": "number", "description": "Waiting on the worker."},
    "run_ms": {"type": "number", "description": "Running the whole batch."},
    "accuracy": {"type": "number", "description": "Of the variant, as measured."},
    "cost_usd_per_1k": {"type": "number", "description": "USD per 1,000 queries like this one."},
    "slo_met": {"type": "boolean", "description": "Without `best_effort` always true."},
}
"""What every reply says of how it came about."""

COMPRESSED = (
    "May come compressed, with `Content-Encoding: gzip` or `deflate`: then what it unpacks to has"
    " the limit of a body. With `MODELLESS_COMPRESS_ANSWERS` a JSON answer of 16 to 256 KiB is"
    " compressed for who sends `Accept-Encoding`."
)
