"""Bodies that routes read or write by themselves, described for the OpenAPI document."""

from typing import Any

from controlplane.files.fields import MAX_LATENCY_MS

MOST_LATENCY_MS = int(MAX_LATENCY_MS)
"""The longest deadline that a query may name."""

_THREE = [
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


def _json(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    """The content of a JSON body."""
    return {"application/json": {"schema": schema} | ({"example": example} if example else {})}


def _refused(code: str) -> dict[str, Any]:
    """A status that only queries answer with."""
    return {"description": code, "content": _json({"$ref": "#/components/schemas/ErrorBody"})}


_REFUSALS = {"422": _refused("SLO_INFEASIBLE"), "504": _refused("DEADLINE_EXCEEDED")}

READINESS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": _json(
            {
                "type": "object",
                "required": ["ready"],
                "properties": {"name": {"type": "string"}, "ready": {"type": "boolean"}},
            }
        ),
    }
    for status, description in ((200, "Ready"), (503, "Not ready"))
}
"""What the protocol's questions for readiness answer with: no error, although 503 says no."""

_ANSWER_HEADERS: dict[str, Any] = {
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

_METADATA: dict[str, Any] = {
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

_COMPRESSED = (
    "May come compressed, with `Content-Encoding: gzip` or `deflate`: then what it unpacks to has"
    " the limit of a body. With `MODELLESS_COMPRESS_ANSWERS` a JSON answer of 16 to 256 KiB is"
    " compressed for who sends `Accept-Encoding`."
)

QUERY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": _COMPRESSED,
        "content": _json(
            {
                "type": "object",
                "required": ["task", "inputs"],
                "additionalProperties": False,
                "properties": {
                    "task": {"type": "string", "example": "digits"},
                    "slo": {
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
                                "enum": ["cost", "accuracy", "latency", "energy"],
                                "description": "What is optimised among what fits.",
                            },
                        },
                    },
                    "inputs": {
                        "description": "A list of rows, or an object from input name to rows; of a"
                        " task with a tokenizer also a list of texts, or of pairs of texts.",
                        "oneOf": [{"type": "array"}, {"type": "object"}],
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
            {"task": "digits", "slo": {"latency_ms": 50, "accuracy": 0.97}, "inputs": [_THREE]},
        ),
    },
    "responses": {
        **_REFUSALS,
        "200": {
            "headers": _ANSWER_HEADERS,
            "content": _json(
                {
                    "type": "object",
                    "description": "The answer, and what was used for it.",
                    "required": [*_METADATA, "outputs"],
                    "properties": {
                        **_METADATA,
                        "outputs": {
                            "description": "Rows of the output, or an object from name to rows."
                        },
                        "labels": {
                            "type": "array",
                            "items": {"oneOf": [{"type": "string"}, {"type": "array"}]},
                            "description": "One per row, where the task has labels; of a task that"
                            " answers each position of a row, a list of them per row.",
                        },
                        "spans": {
                            "type": "array",
                            "items": {"type": "array"},
                            "description": "Of texts, where the task answers each of their tokens:"
                            " for each row where its tokens begin and end, in characters; of pairs"
                            " also in which of the two.",
                        },
                        "scores": {
                            "type": "array",
                            "items": {"oneOf": [{"type": "number"}, {"type": "array"}]},
                            "description": "Of each label.",
                        },
                    },
                }
            ),
        },
    },
}
"""``POST /v1/query``."""

_TENSORS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer"}, "description": "Rows first."},
            "datatype": {"type": "string", "description": "FP32, INT64, UINT8 and so on."},
            "data": {"type": "array", "description": "Nested or flat; left out when binary."},
        },
    },
}

_WANTED: dict[str, Any] = {
    "type": "array",
    "description": "Which outputs are wanted, and how; left out, all of them.",
    "items": {
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
        "description": _COMPRESSED,
        "content": _json(
            {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string", "description": "Comes back in the reply."},
                    "inputs": _TENSORS,
                    "outputs": _WANTED,
                    "parameters": {
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
                            "prefer": {"enum": ["cost", "accuracy", "latency", "energy"]},
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
                "inputs": [
                    {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": _THREE}
                ],
                "parameters": {"latency_slo_ms": 50, "min_accuracy": 0.97},
            },
        ),
    },
    "responses": {
        **_REFUSALS,
        "200": {
            "headers": _ANSWER_HEADERS,
            "content": _json(
                {
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
                            "type": "object",
                            "required": [*_METADATA],
                            "properties": _METADATA,
                        },
                    },
                }
            ),
        },
    },
}
"""``POST /v2/models/{task}/infer``, pinned or not."""

REGISTRATION_FORM: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["task", "name", "model", "evaluation"],
                "properties": {
                    "task": {
                        "type": "string",
                        "description": "The task; made when it is new.",
                        "example": "digits",
                    },
                    "name": {
                        "type": "string",
                        "description": "The model's name; a new version when it is known.",
                        "example": "cnn-small",
                    },
                    "labels": {
                        "type": "string",
                        "description": "Class names of a new task, separated by commas.",
                    },
                    "stage": {"type": "string", "enum": ["candidate", "canary", "live"]},
                    "metric": {
                        "type": "string",
                        "description": "How a new task counts accuracy: top1, top5, within:T,"
                        " r2, cosine or nearest.",
                        "example": "top1",
                    },
                    "lengths": {
                        "type": "string",
                        "description": "Of a model that leaves one axis open beside the batch: the"
                        " sizes at which it is served, each as a task of its own.",
                        "example": "16,64,256",
                    },
                    "pad": {
                        "type": "string",
                        "description": "What fills shorter rows up: a number, or one for each"
                        " input; else 0.",
                        "example": "ids=1,mask=0",
                    },
                    "latency_ms": {"type": "number", "description": "Default of a new task."},
                    "accuracy": {"type": "number", "description": "Default of a new task."},
                    "cost": {"type": "number", "description": "Default of a new task."},
                    "prefer": {"type": "string", "enum": ["cost", "accuracy", "latency", "energy"]},
                    "image_mean": {
                        "type": "string",
                        "description": "How pictures become numbers of a new task,"
                        " (value / 255 - mean) / std: one number, or one for each of three"
                        " channels with commas between.",
                        "example": "0.485,0.456,0.406",
                    },
                    "image_std": {"type": "string", "example": "0.229,0.224,0.225"},
                    "measure": {"type": "string", "enum": ["auto", "full", "sampled"]},
                    "fresh": {
                        "type": "boolean",
                        "description": "Whether all is built and measured anew, whatever the build"
                        " cache has of it.",
                    },
                    "quick": {
                        "type": "boolean",
                        "description": "Whether to judge by 100 rows and measure less, for a first"
                        " look.",
                    },
                    "free_batch": {
                        "type": "boolean",
                        "description": "Of an ONNX file with a fixed number of rows: make it free.",
                    },
                    "cast_float16": {
                        "type": "boolean",
                        "description": "Of an ONNX file with float16 inputs or outputs: make these"
                        " float32.",
                    },
                    "keep_outputs": {
                        "type": "string",
                        "description": "Of an ONNX file: the outputs to keep, by the file's own"
                        " names and in this order, separated by commas.",
                        "examples": ["sentence_embedding"],
                    },
                    "axis_sizes": {
                        "type": "string",
                        "description": "Of an ONNX file: sizes of axes that it leaves open, by its"
                        " names for them, separated by commas.",
                        "examples": ["height=640,width=640"],
                    },
                    "fix_inputs": {
                        "type": "string",
                        "description": "Inputs of an ONNX file that always have one value, and are"
                        " none any more, separated by commas.",
                        "examples": ["sr=16000"],
                    },
                    "batch_axes": {
                        "type": "string",
                        "description": "Inputs and outputs of an ONNX file whose rows are along"
                        " another axis than the first, separated by commas.",
                        "examples": ["state=1,new_state=1"],
                    },
                    "text_inputs": {
                        "type": "string",
                        "description": "Which input of an ONNX file takes what of a text, where"
                        " names do not tell, separated by commas.",
                        "examples": ["ids=tokens,mask=valid"],
                    },
                    "input_names": {
                        "type": "string",
                        "description": "Other names of the model's inputs, in their order,"
                        " separated by commas.",
                    },
                    "output_names": {"type": "string", "description": "The same of its outputs."},
                    "variants": {
                        "type": "string",
                        "description": "Kinds to build, separated by commas; else all that can be.",
                        "example": "onnx-int8,openvino-bf16",
                    },
                    "model": {
                        "type": "string",
                        "format": "binary",
                        "description": "ONNX file, or an archive of modelless.export (.pt2).",
                        "example": "model.onnx",
                    },
                    "evaluation": {
                        "type": "string",
                        "format": "binary",
                        "description": "Rows (.npz) with labels or targets, as the metric wants"
                        " them, to measure accuracy on; of a task that takes texts also .csv, .tsv"
                        " or .jsonl with `text` and `label` or `target`.",
                        "example": "eval.npz",
                    },
                    "tokenizer": {
                        "type": "string",
                        "format": "binary",
                        "description": "The model's tokenizer.json, by which a new task takes"
                        " texts; without one, that of the version before, or the task's.",
                        "example": "tokenizer.json",
                    },
                    "calibration": {
                        "type": "string",
                        "format": "binary",
                        "description": "Rows (.npz) to calibrate int8 on.",
                    },
                    "training": {
                        "type": "string",
                        "format": "binary",
                        "description": "The rows (.npz) that the model was trained on: for "
                        "pruning and distillation.",
                    },
                },
            }
        }
    },
}
"""``POST /v1/models``."""

_ASKED = QUERY["requestBody"]["content"]["application/json"]["schema"]

EXPLAIN: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "As of `/v1/query`, but `rows` may say how many there are in place of"
        " `inputs`.",
        "content": _json(
            _ASKED
            | {
                "required": ["task"],
                "properties": _ASKED["properties"]
                | {
                    "rows": {"type": "integer", "minimum": 1, "default": 1},
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
