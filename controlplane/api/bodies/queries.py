"""Bodies of queries, described for the OpenAPI document."""

from typing import Any

from controlplane.api.bodies.parts import (
    ANSWER_HEADERS,
    COMPRESSED,
    METADATA,
    MOST_LATENCY_MS,
    REFUSALS,
    THREE,
    json_content,
)

QUERY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": COMPRESSED,
        "content": json_content(
            {
                "title": "Query",
                "type": "object",
                "required": ["task", "inputs"],
                "additionalProperties": False,
                "properties": {
                    "task": {"type": "string", "example": "digits"},
                    "slo": {
                        "title": "Slo",
                        "type": "object",
                        "description": "What is needed; left out, the task's own defaults.",
                        "additionalProperties": False,
                        "properties": {
                            "latency_ms": {
                                "type": "number",
                                "exclusiveMinimum": 0,
                                "maximum": MOST_LATENCY_MS,
                                "description": "Deadline in ms, from the first byte of the request "
                                "to the answer.",
                            },
                            "accuracy": {
                                "type": "number",
                                "minimum": 0,
                                "maximum": 1,
                                "description": "Floor: 0.97 asks for a variant that is right in at "
                                "least 97 % of the cases, as measured.",
                            },
                            "cost": {
                                "type": "number",
                                "minimum": 0,
                                "description": "Ceiling, USD per 1,000 queries.",
                            },
                            "prefer": {
                                "type": "string",
                                "enum": ["cost", "accuracy", "latency", "energy"],
                                "description": "What is optimised among what fits.",
                            },
                        },
                    },
                    "inputs": {
                        "description": "A list of rows, or an object from input name to rows; of a"
                        " task with a tokenizer also a list of texts, or of pairs of texts.",
                        "oneOf": [
                            {"type": "array", "items": {}},
                            {"type": "object", "additionalProperties": True},
                        ],
                    },
                    "truncate": {
                        "type": "boolean",
                        "default": False,
                        "description": "Cut texts off that have more tokens than the task takes,"
                        " instead of refusing them.",
                    },
                    "best_effort": {
                        "type": "boolean",
                        "default": False,
                        "description": "Answer with the nearest variant when none fits.",
                    },
                    "variant": {
                        "type": ["string", "null"],
                        "description": "Pin this variant.",
                    },
                    "model_version": {
                        "type": ["string", "null"],
                        "description": "Only variants of this version may answer: vectors of one"
                        " version cannot be compared with those of another.",
                    },
                    "priority": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Who has the lower one, which is the larger number, is "
                        "refused first where not all can be served. 1 is the highest; who names "
                        "none, or 0, has 100.",
                    },
                },
            },
            {"task": "digits", "slo": {"latency_ms": 50, "accuracy": 0.97}, "inputs": [THREE]},
        ),
    },
    "responses": {
        **REFUSALS,
        "200": {
            "headers": ANSWER_HEADERS,
            "content": json_content(
                {
                    "title": "Reply",
                    "type": "object",
                    "description": "The answer, and what was used for it.",
                    "required": [*METADATA, "outputs"],
                    "properties": {
                        **METADATA,
                        "outputs": {
                            "description": "Rows of the output, or an object from name to rows."
                        },
                        "labels": {
                            "type": "array",
                            "items": {
                                "oneOf": [{"type": "string"}, {"type": "array", "items": {}}]
                            },
                            "description": "One per row, where the task has labels; of a task that"
                            " answers each position of a row, a list of them per row.",
                        },
                        "spans": {
                            "type": "array",
                            "items": {"type": "array", "items": {}},
                            "description": "Of texts, where the task answers each of their tokens:"
                            " for each row where its tokens begin and end, in characters; of pairs"
                            " also in which of the two.",
                        },
                        "scores": {
                            "type": "array",
                            "items": {
                                "oneOf": [{"type": "number"}, {"type": "array", "items": {}}]
                            },
                            "description": "Of each label.",
                        },
                    },
                }
            ),
        },
    },
}
"""``POST /v1/query``."""

_ASKED = QUERY["requestBody"]["content"]["application/json"]["schema"]

EXPLAIN: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "As of `/v1/query`, but `rows` may say how many there are in place of"
        " `inputs`.",
        "content": json_content(
            _ASKED
            | {
                "title": "ExplainedQuery",
                "required": ["task"],
                "properties": _ASKED["properties"]
                | {
                    "rows": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "In place of `inputs`; without either, 1.",
                    },
                    "length": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Of each row, of a task for rows of several lengths; else"
                        " the longest.",
                    },
                },
            },
            {"task": "digits", "slo": {"latency_ms": 50, "accuracy": 0.97}},
        ),
    }
}
"""A query whose answer is explained."""
