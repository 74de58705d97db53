"""What a program may contain: sizes, conditions, operators and names."""

from collections.abc import Callable
from typing import Any

import pytest

from variants.checks.archive import program_words as words
from variants.checks.archive.program_check import called
from variants.checks.json_shape import Misfit

pytestmark = pytest.mark.slow


def taken(kind: Callable[[Any], None], value: Any) -> bool:
    try:
        kind(value)
    except Misfit:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s0', positive=True, integer=True)",
        "Mul(Integer(16), Symbol('s77', positive=True, integer=True))",
        "Add(FloorDiv(Symbol('s77', integer=True), Integer(2)), Integer(-1))",
        "Min(Integer(16), Mod(Symbol('u0', integer=True), Integer(3)))",
        "Pow(Symbol('s0', integer=True), Integer(2))",
        "Mul(Float('0.5', precision=53), Symbol('zf1'))",
    ],
)
def test_arithmetic_on_sizes_is_taken(text: str) -> None:
    assert taken(words.symbolic, text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "Symbol('s0').__class__",
        "Symbol('s0', cls=print)",
        "Symbol('s0; import os')",
        "Symbol(Symbol('s0'))",
        "Symbol('u99999999')",  # torch counts up to it
        "Pow(Integer(9), Integer(8))",
        "Pow(Pow(Symbol('s0'), Integer(8)), Integer(8))",
        "Pow(Symbol('s0'), Integer(9))",
        "9**9**9",
        "Integer(99999999999999999999)",
        "Lambda(Symbol('s0'), Integer(1))",
        "[Integer(1) for x in Integer(2)]",
        "Add(*Integer(1))",
        "(lambda: Integer(1))()",
        "Integer(1) if Integer(1) else Integer(2)",
        "Integer(1)#",
        "Integer(1)\n",
        "Integer('1')",
        "Float('nan')",
        "S(1)",
        "s0",
        "",
        "(" * 500 + ")" * 500,
        "Add(" * 100 + "Integer(1)" + ")" * 99,
        7,
        None,
    ],
)
def test_nothing_but_arithmetic_on_sizes_is_taken(text: Any) -> None:
    assert not taken(words.symbolic, text)


@pytest.mark.parametrize(
    "text",
    [
        "L['image'].size()[0] == L['other'].size()[0]",
        "2 <= L['x'].size()[0] and L['x'].size()[0] <= 64",
        "not (L['args'][0].stride()[1] % 8 == 0)",
    ],
)
def test_conditions_on_sizes_are_taken(text: str) -> None:
    assert taken(words.guard, text)


@pytest.mark.parametrize(
    "text",
    [
        "print(L['x'])",
        "L['x'].size()[0].__class__ == 1",
        "L['x'].size(1)[0] == 1",
        "L['x'].data_ptr()[0] == 1",
        "M['x'].size()[0] == 1",
        "L[print()].size()[0] == 1",
        "L['x\"); print(1); (\"'].size()[0] == 1",
        "L['x'].size()[0] == 1 or __import__('os')",
        "L['x'].size()[0] == 2 ** 99",
        "(y := 1) == 1",
        "1 == 1, print(1)",
        "True",
    ],
)
def test_nothing_but_conditions_on_sizes_is_taken(text: str) -> None:
    assert not taken(words.guard, text)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("torch.ops.aten.linear.default", True),
        ("torch.ops.aten._softmax.default", True),
        ("_operator.floordiv", True),
        ("torch.sym_max", True),
        ("torch.ops.higher_order.cond", True),
        ("torch.ops.aten._unsafe_index.Tensor", False),
        ("torch.ops.aten.fbgemm_pack_gemm_matrix_fp16.default", False),
        ("torch.ops.aten.fill_.Scalar", False),
        ("torch.ops.aten.empty.memory_format", False),
        ("torch.ops.aten.rand.default", False),
        ("torch.ops.aten.linear", False),
        ("linear.default", False),
        ("torch.ops.aten.from_file.default", False),
        ("torch.ops.aten.linear.default.__class__", False),
        ("torch.ops.aten.__class__.default", False),
        ("torch.ops.mine.linear.default", False),
        ("torch.ops.higher_order.triton_kernel_wrapper_mutation", False),
        ("torch.hub.load", False),
        ("torch.load", False),
        ("torch.os.system", False),
        ("math.__loader__.load_module", False),
        ("_operator.attrgetter", False),
        ("#mine:operator", False),
    ],
)
def test_operators_compute_and_do_nothing_else(target: str, wanted: bool) -> None:
    assert taken(words.target, target) is wanted


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ("relu_.default", ", because it changes a tensor in place"),
        ("new_empty.default", ", because it gives memory that was never set"),
        ("fbgemm_pack_gemm_matrix_fp16.default", ""),
    ],
)
def test_a_refused_operator_is_named_with_the_reason_and_what_to_do(
    operator: str, why: str
) -> None:
    with pytest.raises(Misfit) as misfit:
        words.target(f"torch.ops.aten.{operator}")
    assert str(misfit.value) == (
        f"is 'torch.ops.aten.{operator}', which is no operator that models may use here{why}; "
        "export the model again with modelless.export, which does without it where that is possible"
    )


SWITCHES: list[tuple[str, dict[str, Any], str]] = [
    ("dropout.default", {"train": {"as_bool": True}}, "is in training mode"),
    ("gru.input", {"train": {"as_bool": True}}, "is in training mode"),
    ("batch_norm.default", {"training": {"as_bool": True}}, "is in training mode"),
    (
        "scaled_dot_product_attention.default",
        {"dropout_p": {"as_float": 0.5}},
        "drops out at random",
    ),
    (
        "instance_norm.default",
        {
            "running_mean": {"as_tensor": {"name": "mean"}},
            "use_input_stats": {"as_bool": True},
        },
        "changes its own statistics",
    ),
    ("dropout.default", {"train": {"as_bool": False}, "p": {"as_float": 0.5}}, ""),
    ("scaled_dot_product_attention.default", {"dropout_p": {"as_float": 0.0}}, ""),
    (
        "instance_norm.default",
        {"running_mean": {"as_none": True}, "use_input_stats": {"as_bool": True}},
        "",
    ),
]


@pytest.mark.parametrize(("operator", "given", "why"), SWITCHES)
def test_operators_neither_learn_nor_draw(operator: str, given: dict[str, Any], why: str) -> None:
    node = {
        "target": f"torch.ops.aten.{operator}",
        "inputs": [{"name": name, "arg": arg} for name, arg in given.items()],
        "outputs": [],
        "metadata": {},
    }
    if why:
        with pytest.raises(Misfit, match=why):
            called(node)
    else:
        called(node)


@pytest.mark.parametrize("name", ["class", "a-b", "a b", "x=1;y", "", "0x", "é", "a" * 501, "a\n"])
def test_names_that_would_be_code_are_refused(name: str) -> None:
    assert not taken(words.name, name)


def test_paths_lead_to_parts_of_a_module_only() -> None:
    assert taken(words.path, "layers.0.self_attn.weight")
    assert not taken(words.path, "layers.__class__.weight")
    assert not taken(words.path, "../weight")
