"""The list of operators, held against every overload of the PyTorch that is installed here."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from variants.checks.archive import program_operators, program_words
from variants.checks.archive.program_operators import CORE, EXPORTED, OPERATORS
from variants.checks.json_shape import Misfit

torch = pytest.importorskip("torch")

from controlplane.client.exporting.functional import functional  # noqa: E402
from tests.torch_models import Applied, rows  # noqa: E402
from tests.variants.checks import traced_operators  # noqa: E402

pytestmark = pytest.mark.slow

Op = Any
"""A ``torch._ops.OpOverload``."""

PLAIN = re.compile(
    r"(Optional|List)\[(.*)\]|Tensor|int|float|bool|complex|number|str|Device|Generator"
)
"""Types of tensors and plain values; a generator can only be left out."""
PACKED = re.compile(r"pack|fbgemm|mkldnn|quantize|_cslt|_cudnn|miopen|mps_")
SWITCHES = {"train", "training", "dropout_p"}
"""Arguments that turn the drawing of random numbers off, and that the check demands to do so."""


def overloads() -> Iterator[tuple[str, str]]:
    """Namespace and ``name.overload`` of every operator that this PyTorch knows."""
    found = {
        (schema.name.partition("::")[0], schema.name.partition("::")[2], schema.overload_name)
        for schema in torch._C._jit_get_all_schemas()
    }
    for namespace, name, overload in sorted(found):
        yield namespace, f"{name}.{overload or 'default'}"


def operator(namespace: str, name: str) -> Op | None:
    """What the name means below ``torch.ops``, if it is an operator there."""
    packet = getattr(getattr(torch.ops, namespace), name.partition(".")[0], None)
    found = getattr(packet, name.partition(".")[2], None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def is_plain(kind: str) -> bool:
    matched = PLAIN.fullmatch(kind)
    return matched is not None and (matched[2] is None or is_plain(matched[2]))


def why_not(found: Op) -> str:
    """What keeps an operator from the list, by its properties; empty when nothing does."""
    schema, name = found._schema, found._schema.name.partition("::")[2]
    if schema.is_mutable:
        return "changes what it is given"
    if "empty" in name or "resize" in name:
        return "gives memory that was never set"
    if PACKED.search(name):
        return "gives or takes weights in a form that no model file can hold"
    if not all(is_plain(str(each.type)) for each in (*schema.arguments, *schema.returns)):
        return "takes or gives what is neither a tensor nor a plain value"
    drawing = torch.Tag.nondeterministic_seeded in found.tags
    if name == "native_dropout" or (drawing and not SWITCHES & {a.name for a in schema.arguments}):
        return "draws random numbers"
    if "_backward" in name:
        return "is for training"
    return ""


def is_core(found: Op) -> bool:
    return torch.Tag.core in found.tags


def taken(target: str) -> bool:
    try:
        program_words.target(target)
    except Misfit:
        return False
    return True


@pytest.fixture(scope="module")
def written() -> set[str]:
    """Operators in what exporting writes, as it is traced and as it is made functional."""
    return traced_operators.written()


def test_every_overload_is_listed_for_a_reason_or_refused(written: set[str]) -> None:
    """Core ATen, or written by our exporter for the models of ``tests/torch_models.py``."""
    seen, wrong = 0, []
    for namespace, name in overloads():
        found = operator(namespace, name)
        reason = False
        if found is not None and namespace == "aten" and not why_not(found):
            reason = is_core(found) or name in written
        seen += found is not None
        if taken(f"torch.ops.{namespace}.{name}") is not reason:
            wrong.append(f"{namespace}.{name}")
    assert wrong == []
    assert seen > 3_000


def test_the_list_names_no_operator_that_there_is_not() -> None:
    assert {name for name in OPERATORS if operator("aten", name) is None} == set()


def test_the_two_parts_are_what_they_say(written: set[str]) -> None:
    found = {name: operator("aten", name) for name in OPERATORS}
    assert {name for name, each in found.items() if each and is_core(each)} == CORE
    assert written >= EXPORTED
    assert not CORE & EXPORTED


def test_what_was_traced_is_of_the_exporter_and_the_models_of_now() -> None:
    """Else each new machine traces for half a minute."""
    renew = "python -m tests.variants.checks.traced_operators writes it anew"
    assert json.loads(traced_operators.FILE.read_text())["of"] == traced_operators.state(), renew


def test_of_another_docstring_or_comment_it_is_as_well() -> None:
    before = traced_operators.program_of('"""One."""\nx = 1  # as one\n"""A number."""\n')
    assert traced_operators.program_of('"""Another."""\nx = 1\n"""What it is."""\n') == before
    assert traced_operators.program_of('"""One."""\nx = 2\n"""A number."""\n') != before


@pytest.mark.campaign
def test_what_was_traced_is_what_tracing_writes(written: set[str]) -> None:
    assert traced_operators.traced() == written


def test_the_list_is_sorted_and_needs_no_torch() -> None:
    source = Path(program_operators.__file__).read_text()
    blocks = re.findall(r'frozenset\(\n    """\n(.*?)\n    """\.split', source, re.DOTALL)
    assert [block.split() for block in blocks] == [sorted(CORE), sorted(EXPORTED)]
    assert not re.search(r"^(import|from) ", source, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fill_.Scalar", "changes what it is given"),
        ("add.out", "changes what it is given"),
        ("_native_batch_norm_legit.default", "changes what it is given"),
        ("set_.source_Storage", "changes what it is given"),
        ("empty.memory_format", "gives memory that was never set"),
        ("new_empty_strided.default", "gives memory that was never set"),
        ("fbgemm_pack_gemm_matrix_fp16.default", "gives or takes weights in a form that"),
        ("mkldnn_linear.default", "gives or takes weights in a form that"),
        ("rand.default", "draws random numbers"),
        ("bernoulli.default", "draws random numbers"),
        ("native_dropout.default", "draws random numbers"),
        ("native_layer_norm_backward.default", "is for training"),
        ("qscheme.default", "takes or gives what is neither a tensor nor a plain value"),
    ],
)
def test_what_is_refused_by_property(name: str, why: str) -> None:
    found = operator("aten", name)
    assert found is not None
    assert why_not(found).startswith(why)
    assert not taken(f"torch.ops.aten.{name}")


def test_programs_are_functional_and_nothing_in_them_is_unset() -> None:
    """Writing in place becomes a result; memory that was asked for unset is zeros."""

    def forward(x: Any) -> Any:
        unset = torch.empty(4).sum() * 0 + x.new_empty(2, 4).sum() * 0
        held = torch.empty_strided((4, 4), (1, 4)).copy_(torch.ones(4, 4))
        other = x.new_empty_strided((2, 4), (4, 1)).fill_(2.0)
        turned = torch.empty_permuted((2, 3, 4), (2, 0, 1)).fill_(3.0)
        return x.clone().add_(1).relu_() + unset + held[0] + other[1] + turned[0, 0]

    # Not what the function gives itself: memory that was never set may hold what is no number.
    program, wanted = program_of(forward), (rows(4) + 1).relu() + 0.0 + 1.0 + 2.0 + 3.0
    names = called(program)
    assert not any(name.endswith("_") or "empty" in name for name in names)
    assert names <= OPERATORS
    torch.testing.assert_close(program.module()(rows(4)), wanted)


def test_what_is_not_listed_is_decomposed() -> None:
    def forward(x: Any) -> Any:
        return torch.nn.functional.huber_loss(x, x + 1, reduction="none") + torch.trace(x.T @ x)

    program = program_of(forward)
    assert called(program) <= OPERATORS
    torch.testing.assert_close(program.module()(rows(4)), forward(rows(4)))


def test_what_has_no_decomposition_stays_and_is_refused() -> None:
    names = called(program_of(torch.special.bessel_j0))
    assert names - OPERATORS == {"special_bessel_j0.default"}
    assert not taken("torch.ops.aten.special_bessel_j0.default")


def program_of(forward: Callable[..., Any]) -> Any:
    batch = ({0: torch.export.Dim("batch")},)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.export.export(Applied(forward), (rows(4),), dynamic_shapes=batch)
        return functional(made)


def called(program: Any) -> set[str]:
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    return {name.removeprefix("aten.") for name in targets if name.startswith("aten.")}
