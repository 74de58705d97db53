"""Which inputs texts fill, and which tasks take any."""

from typing import Any

import pytest

from tests.texts import text_input, tokenizer_json
from variants.errors import InvalidInput
from variants.texts.inputs import check_text, packed, roles_of, unpacked
from variants.types import LengthBucket, OpenAxis, Task, TaskName, TensorSpec

NAMES = ("input_ids", "attention_mask")


def task(
    names: tuple[str, ...] = NAMES,
    dtype: str = "int64",
    shape: tuple[int, ...] = (8,),
    **text: Any,
) -> Task:
    return Task(
        name=TaskName("opinions"),
        inputs=tuple(TensorSpec(name=name, dtype=dtype, shape=shape) for name in names),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(2,)),),
        text=text_input(b"{}", **text),
    )


@pytest.mark.parametrize(
    ("inputs", "given", "roles"),
    [
        (NAMES, {}, ("input_ids", "attention_mask", None)),
        (("mask", "ids"), {}, ("ids", "mask", None)),
        (("Input_IDs", "token_type_ids"), {}, ("Input_IDs", None, "token_type_ids")),
        (("words",), {}, ("words", None, None)),
        (("a", "b"), {"mask": "a"}, ("b", "a", None)),
        (("a", "b", "c"), {"types": "a", "ids": "b", "mask": "c"}, ("b", "c", "a")),
    ],
)
def test_inputs_are_known_by_their_names(
    inputs: tuple[str, ...], given: dict[str, str], roles: tuple[str | None, ...]
) -> None:
    assert roles_of(inputs, given, "m.onnx") == roles


@pytest.mark.parametrize(
    ("inputs", "given", "reason"),
    [
        (("a", "b"), {}, "input 'a' of m.onnx is told by its name"),
        ((*NAMES, "position_ids"), {}, "input 'position_ids' of m.onnx"),
        (("attention_mask",), {}, "no input of m.onnx is told"),
        (NAMES, {"ids": "words"}, "m.onnx has no input 'words' that could take the ids"),
        (NAMES, {"tokens": "input_ids"}, "ids, mask, types, and nothing that is called 'tokens'"),
    ],
)
def test_inputs_that_nothing_fills_are_refused(
    inputs: tuple[str, ...], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        roles_of(inputs, given, "m.onnx")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"names": ("input_ids",)}, "has 1 input .*, and a text would fill input_ids, attention"),
        ({"mask": None}, "has 2 inputs .*, and a text would fill input_ids"),
        ({"dtype": "float32"}, "holds float32, and numbers of tokens are int64 or int32"),
        ({"shape": (8, 2)}, "has rows of 2 axes, and those of texts have one"),
        ({"pad": -1}, "must be the number of a token"),
        ({"pad": 0.5}, "must be the number of a token"),
    ],
)
def test_a_task_with_other_inputs_takes_no_texts(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        check_text(task(**changed))
    check_text(task())


def test_behind_a_text_the_mask_is_nothing() -> None:
    axes = tuple(OpenAxis(input=name, axis=0, pad=float(name != "input_ids")) for name in NAMES)
    made = Task(
        name=TaskName("opinions.8"),
        inputs=task().inputs,
        outputs=task().outputs,
        bucket=LengthBucket(of=TaskName("opinions"), length=8, axes=axes),
        text=task().text,
    )
    with pytest.raises(InvalidInput, match="fills up the mask 'attention_mask' with 1"):
        check_text(made)


def test_a_tokenizer_is_kept_packed() -> None:
    data = tokenizer_json()
    assert unpacked(packed(data)) == data
    assert len(packed(data)) < len(data)
    for wrong in (b"", b"none", packed(data)[:-4]):
        with pytest.raises(InvalidInput, match="a tokenizer is damaged"):
            unpacked(wrong)
