"""``POST /v1/embeddings`` for the OpenAPI document."""

from typing import Any

from controlplane.api.bodies.queries import QUERY
from controlplane.api.errors import WAITS
from controlplane.gateway.embeddings.asked import MOST_TEXTS

_ASKED: dict[str, Any] = QUERY["requestBody"]["content"]["application/json"]["schema"]["properties"]
_BESIDE = ("slo", "best_effort", "variant", "model_version", "priority", "truncate")
_ERROR: dict[str, Any] = {
    "application/json": {
        "schema": {
            "title": "OpenAiErrorBody",
            "type": "object",
            "required": ["error", "code"],
            "properties": {
                "error": {
                    "title": "OpenAiError",
                    "type": "object",
                    "required": ["message", "type", "code"],
                    "properties": {
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                        "param": {"type": "null"},
                        "code": {"type": "string"},
                    },
                },
                "code": {"type": "string"},
                "retryable": {"type": "boolean"},
                "request_id": {"type": "string"},
            },
        }
    }
}
_STATUSES = (400, 401, 403, 404, 413, 415, 422, 429, 500, 503, 504)

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error, as in OpenAI's API.", "content": _ERROR}
    | ({"headers": WAITS} if status in (429, 503) else {})
    for status in _STATUSES
}
"""In place of those of other routes."""

EMBEDDINGS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "title": "EmbeddingsQuery",
                    "type": "object",
                    "required": ["model", "input"],
                    "additionalProperties": False,
                    "properties": {
                        "model": {
                            "type": "string",
                            "description": "A task, or `TASK/VERSION`: vectors of this version"
                            " alone.",
                        },
                        "input": {
                            "description": "A text, or a list of texts.",
                            "oneOf": [
                                {"type": "string"},
                                {
                                    "type": "array",
                                    "items": {"type": "string"},
                                    "minItems": 1,
                                    "maxItems": MOST_TEXTS,
                                },
                            ],
                        },
                        "encoding_format": {"type": "string", "enum": ["float", "base64"]},
                        "dimensions": {
                            "type": "integer",
                            "description": "As many as the task's vectors have.",
                        },
                        "user": {"type": "string", "description": "Changes nothing."},
                        **{name: _ASKED[name] for name in _BESIDE},
                    },
                },
                "example": {"model": "search", "input": ["a great film", "so long"]},
            }
        },
    },
    "responses": {
        "200": {
            "description": "The vectors.",
            "content": {
                "application/json": {
                    "schema": {
                        "title": "Embeddings",
                        "type": "object",
                        "required": ["object", "data", "model", "usage", "model_version"],
                        "properties": {
                            "object": {"type": "string", "enum": ["list"]},
                            "data": {
                                "type": "array",
                                "items": {
                                    "title": "Embedding",
                                    "type": "object",
                                    "required": ["object", "index", "embedding"],
                                    "properties": {
                                        "object": {"type": "string", "enum": ["embedding"]},
                                        "index": {"type": "integer"},
                                        "embedding": {
                                            "oneOf": [
                                                {"type": "array", "items": {"type": "number"}},
                                                {"type": "string"},
                                            ]
                                        },
                                    },
                                },
                            },
                            "model": {
                                "type": "string",
                                "description": "`TASK/VERSION`, by which more vectors of the same"
                                " version can be asked for.",
                            },
                            "usage": {
                                "title": "EmbeddingsUsage",
                                "type": "object",
                                "properties": {
                                    "prompt_tokens": {"type": "integer"},
                                    "total_tokens": {"type": "integer"},
                                },
                            },
                            "model_version": {"type": "string"},
                            "variants": {"type": "array", "items": {"type": "string"}},
                            "accuracy": {
                                "type": "number",
                                "description": "Of the least accurate variant that answered.",
                            },
                            "slo_met": {"type": "boolean"},
                        },
                    }
                }
            },
        },
    },
}
