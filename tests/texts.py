"""A tokenizer and a model of texts: words are ``good`` or ``bad``, and a text is what most are."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests import onnx_models
from tests.onnx_models import node, tensor
from variants.texts.inputs import digest_of_text
from variants.types import TextInput

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "the")
PAD, UNKNOWN, BEGIN, END, GOOD, BAD, FILM, THE = range(len(WORDS))
WORTH = np.array([9, 0, 0, 0, 1, -1, 0, 0], np.float32)
"""Of each word; that of padding shows where it is not left out."""


def tokenizer_json(**changes: Any) -> bytes:
    """A ``tokenizer.json`` of these words, as ``tokenizers`` writes it."""
    made = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", BEGIN), ("[SEP]", END)],
    )
    # What the file says of these is for its model's training: rows here have other lengths.
    made.enable_truncation(changes.get("truncation", 6))
    made.enable_padding(pad_id=changes.get("pad", PAD), length=changes.get("length", 12))
    return str(made.to_str()).encode()


def text_input(tokenizer: bytes, **changes: Any) -> TextInput:
    given: dict[str, Any] = {
        "tokenizer": digest_of_text(tokenizer),
        "ids": "input_ids",
        "mask": "attention_mask",
    }
    return TextInput(**(given | changes))


def opinion_model(length: int | str = "tokens", **changes: Any) -> Any:
    """Says whether a text is bad or good, of any length or of one."""
    given: dict[str, Any] = {
        "inputs": [
            tensor("input_ids", "batch", length, kind=TensorProto.INT64),
            tensor("attention_mask", "batch", length, kind=TensorProto.INT64),
        ],
        "nodes": [
            node("Gather", ("worth", "input_ids"), "each"),
            node("Cast", ("attention_mask",), "mask", to=TensorProto.FLOAT),
            node("Mul", ("each", "mask"), "kept"),
            node("ReduceSum", ("kept", "axis"), "sum", keepdims=1),
            node("MatMul", ("sum", "signs"), "product"),
            node("Softmax", ("product",), "scores"),
        ],
        "outputs": [tensor("scores", "batch", 2)],
        "weights": {
            "worth": WORTH,
            "axis": np.array([1]),
            "signs": np.array([[-1.0, 1.0]], np.float32),
        },
    } | changes
    return onnx_models.model(**given)


def encoder_model() -> Any:
    """Vectors of two numbers, which point up for texts of good words and down for bad ones."""
    whole = opinion_model()
    nodes = [one for one in whole.graph.node if one.op_type != "Softmax"]
    nodes[-1].output[0] = "vector"
    return opinion_model(nodes=nodes, outputs=[tensor("vector", "batch", 2)])


OTHER_WORDS = ("<s>", "<pad>", "</s>", "<unk>", "the", "film", "bad", "good")
"""Of another tokenizer, which begins and ends texts with other numbers."""
OTHER_WORTH = np.array([0, 9, 0, 0, 0, 0, -1, 1], np.float32)


def other_tokenizer_json() -> bytes:
    made = Tokenizer(
        models.WordLevel(
            {word: number for number, word in enumerate(OTHER_WORDS)}, unk_token="<unk>"
        )
    )
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> <s> $A </s>",
        pair="<s> <s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    made.enable_padding(pad_id=1, length=12)
    return str(made.to_str()).encode()


def other_opinion_model(length: int | str = "tokens", **changes: Any) -> Any:
    """The same as ``opinion_model`` by the other tokenizer, and with other inputs: numbers of 32
    bits that are called otherwise, a mask of another type and, behind them, types of tokens. Where
    these are not 0, it says the opposite."""
    given: dict[str, Any] = {
        "inputs": [
            tensor("ids", "batch", length, kind=TensorProto.INT32),
            tensor("input_mask", "batch", length, kind=TensorProto.INT32),
            tensor("segment_ids", "batch", length, kind=TensorProto.INT32),
        ],
        "nodes": [
            node("Gather", ("worth", "ids"), "each"),
            node("Cast", ("input_mask",), "mask", to=TensorProto.FLOAT),
            node("Mul", ("each", "mask"), "kept"),
            node("Cast", ("segment_ids",), "types", to=TensorProto.FLOAT),
            node("Mul", ("types", "minus"), "opposite"),
            node("Add", ("kept", "opposite"), "both"),
            node("ReduceSum", ("both", "axis"), "sum", keepdims=1),
            node("MatMul", ("sum", "signs"), "product"),
            node("Softmax", ("product",), "scores"),
        ],
        "outputs": [tensor("scores", "batch", 2)],
        "weights": {
            "worth": OTHER_WORTH,
            "minus": np.array(-99.0, np.float32),
            "axis": np.array([1]),
            "signs": np.array([[-1.0, 1.0]], np.float32),
        },
    } | changes
    return onnx_models.model(**given)


def write_texts(path: Path, rows: int = 40) -> Path:
    """Texts of three to eight tokens with what is right, as a ``.csv``."""
    lines = ["text,label"]
    for number in range(rows):
        word, label = ("good", "pos") if number % 2 else ("bad", "neg")
        lines.append(f'"{" ".join([word] + ["the film"] * (number % 3))}",{label}')
    path.write_text("\n".join(lines) + "\n")
    return path
