"""The form by which a model is registered, described for the OpenAPI document."""

from typing import Any

REGISTRATION_FORM: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "title": "Registration",
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
                        "description": "How a new task counts accuracy: top1, top5, balanced,"
                        " f1, within:T, r2, cosine or nearest.",
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
