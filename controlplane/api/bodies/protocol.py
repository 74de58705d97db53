"""Bodies of the Open Inference Protocol, described for the OpenAPI document."""

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

READINESS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": json_content(
            {
                "title": "Readiness",
                "type": "object",
                "required": ["ready"],
                "properties": {"name": {"type": "string"}, "ready": {"type": "boolean"}},
            }
        ),
    }
    for status, description in ((200, "Ready"), (503, "Not ready"))
}
"""What the protocol's questions for readiness answer with: no error, although 503 says no."""

_TENSORS: dict[str, Any] = {
    "type": "array",
    "items": {
        "title": "InferTensor",
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer"}, "description": "Rows first."},
            "datatype": {"type": "string", "description": "FP32, INT64, UINT8 and so on."},
            "data": {
                "type": "array",
                "items": {},
                "description": "Nested or flat; left out when binary.",
            },
        },
    },
}

_WANTED: dict[str, Any] = {
    "type": "array",
    "description": "Which outputs are wanted, and how; left out, all of them.",
    "items": {
        "title": "InferWanted",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "parameters": {
                "type": "object",
                "properties": {
                    "binary_data": {"type": "boolean", "description": "Behind the JSON, raw."},
                    "classification": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "So many best classes in its place, as `score:index:label`.",
                    },
                },
            },
        },
    },
}

INFER: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": COMPRESSED,
        "content": json_content(
            {
                "title": "InferRequest",
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string", "description": "Comes back in the reply."},
                    "inputs": _TENSORS,
                    "outputs": _WANTED,
                    "parameters": {
                        "title": "InferParameters",
                        "type": "object",
                        "properties": {
                            "latency_slo_ms": {
                                "type": "number",
                                "exclusiveMinimum": 0,
                                "maximum": MOST_LATENCY_MS,
                            },
                            "min_accuracy": {"type": "number", "minimum": 0, "maximum": 1},
                            "model_version": {"type": "string"},
                            "max_cost_usd_per_1k": {"type": "number", "minimum": 0},
                            "prefer": {
                                "type": "string",
                                "enum": ["cost", "accuracy", "latency", "energy"],
                            },
                            "best_effort": {"type": "boolean", "default": False},
                            "timeout": {"type": "integer", "description": "Microseconds."},
                            "priority": {
                                "type": "integer",
                                "minimum": 0,
                                "description": "1 is the highest; who names none, or 0, has 100.",
                            },
                        },
                    },
                },
            },
            {
                "inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": THREE}],
                "parameters": {"latency_slo_ms": 50, "min_accuracy": 0.97},
            },
        ),
    },
    "responses": {
        **REFUSALS,
        "200": {
            "headers": ANSWER_HEADERS,
            "content": json_content(
                {
                    "title": "InferResponse",
                    "type": "object",
                    "description": "The outputs; `parameters` say what was used.",
                    "required": ["model_name", "model_version", "outputs", "parameters"],
                    "properties": {
                        "model_name": {"type": "string", "description": "The task."},
                        "model_version": {
                            "type": "string",
                            "description": "The variant that answered.",
                        },
                        "id": {"type": "string"},
                        "outputs": _TENSORS,
                        "parameters": {
                            "title": "AnsweredBy",
                            "type": "object",
                            "required": [*METADATA],
                            "properties": METADATA,
                        },
                    },
                }
            ),
        },
    },
}
"""``POST /v2/models/{task}/infer``, pinned or not."""
