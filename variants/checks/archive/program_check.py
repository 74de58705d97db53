"""Whether a ``torch.export`` program says nothing that could act: every reason not to read it.

The program is JSON, but what reads it is not a JSON reader only. ``torch.export.load`` evaluates
the text of symbolic sizes as Python, looks operators up by any dotted path below ``torch``, and
writes names and guards into source code that it executes. So no pickle inside is not enough: all
that the document holds is held against torch's schema here, and whatever ends up in code must be of
a vocabulary that can only compute.

Nothing here imports torch. Schema: ``torch/_export/serde/schema.py``; reader:
``torch/_export/serde/serialize.py`` of torch 2.13.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from variants.checks.archive import program_words as words
from variants.checks.archive.tensor_layout import ITEM_BYTES, TensorLayout, fixed_size, layout_of
from variants.checks.json_shape import (
    Misfit,
    Shape,
    boolean,
    integer,
    list_of,
    map_of,
    number,
    one_of,
    optional,
    read_json,
    record,
    recursive,
    text,
    union,
)
from variants.errors import InvalidArtifact
from variants.types import TensorSpec

SCHEMA = (8, 20)
"""The version of the schema that torch 2.13 writes, major and minor."""

_DTYPES = {7: "float32", 8: "float64", 5: "int64", 4: "int32", 1: "uint8", 12: "bool"}
_STRIDED = 7
_NO_DROPOUT = (("as_none", True), ("as_float", 0.0), ("as_int", 0))
_UNPRINTED = r"\x7f\x85\u2028\u2029\ud800-\udfff"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInfo:
    """What a checked program says of itself."""

    inputs: tuple[TensorSpec, ...]
    """The inputs by position, each with the shape of one row."""
    outputs: tuple[TensorSpec, ...]
    weights: Mapping[str, TensorLayout]
    """Parameters and persistent buffers."""
    constants: Mapping[str, TensorLayout]


def check_program(data: bytes, *, where: str, max_depth: int, max_nodes: int) -> ProgramInfo:
    """Hold a program's document against the schema and the vocabulary.

    Raises:
        InvalidArtifact: the first thing that does not fit. The sentence begins with ``where``.
    """
    document = read_json(data, where=where, max_depth=max_depth)
    try:
        _check_version(document)
        PROGRAM(document)
        graph = document["graph_module"]["graph"]
        if len(graph["nodes"]) > max_nodes:
            count = len(graph["nodes"])
            raise Misfit(f"has {count} nodes, more than the {max_nodes} allowed")
        return _info(graph, document["graph_module"]["signature"])
    except Misfit as misfit:
        raise InvalidArtifact(misfit.of(where)) from None


# -- what may stand where ------------------------------------------------------------------------


def _tree(value: Any) -> None:
    """How arguments or results are nested: tuples, lists and dictionaries of tensors only."""
    _text(value)
    try:
        tree = read_json(value.encode(), where="", max_depth=32)
    except InvalidArtifact:
        raise Misfit("is no description of arguments") from None
    if not isinstance(tree, list) or len(tree) != 2 or tree[0] != 1:
        raise Misfit("is no description of arguments")
    _TREE(tree[1])


def _keys(value: Any) -> None:
    """The keys of a dictionary, as JSON in text."""
    _text(value)
    try:
        keys = read_json(value.encode(), where="", max_depth=3)
    except InvalidArtifact:
        raise Misfit("is no list of names") from None
    optional(list_of(words.name))(keys)


# -- the schema ----------------------------------------------------------------------------------

_call_path = text(r"([A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(@[0-9]+)?)?", "a module's path")
_text = text(rf"[^\x00-\x08\x0b-\x1f{_UNPRINTED}]{{0,100000}}", "printable text")
_line = text(rf"[^\x00-\x1f{_UNPRINTED}]{{0,1000}}", "a line of text")
_dtype = one_of(*ITEM_BYTES)
_device = record({"type": one_of("cpu"), "index": one_of(None, 0)}, absent=("index",))
_layout = one_of(_STRIDED)

_hint = optional(union({"as_int": integer(), "as_bool": boolean, "as_float": number}))
_expression = record({"expr_str": words.symbolic, "hint": _hint}, absent=("hint",))
_size = union({"as_expr": _expression, "as_int": integer(0)})
_sym_float = union({"as_expr": _expression, "as_float": number})
_sym_bool = union({"as_expr": _expression, "as_bool": boolean})
TENSOR = record(
    {
        "dtype": _dtype,
        "sizes": list_of(_size),
        "requires_grad": boolean,
        "device": _device,
        "strides": list_of(_size),
        "storage_offset": _size,
        "layout": _layout,
    }
)
"""The description of a tensor, without its numbers."""

_tensor = record({"name": words.name})
_of_int = union({"as_name": words.name, "as_int": integer()})
_of_float = union({"as_name": words.name, "as_float": number})
_of_bool = union({"as_name": words.name, "as_bool": boolean})
_maybe_tensor = union({"as_tensor": _tensor, "as_none": boolean})
_argument = union(
    {
        "as_none": boolean,
        "as_tensor": _tensor,
        "as_tensors": list_of(_tensor),
        "as_int": integer(),
        "as_ints": list_of(integer()),
        "as_float": number,
        "as_floats": list_of(number),
        "as_string": _line,
        "as_strings": list_of(_line),
        "as_sym_int": _of_int,
        "as_sym_ints": list_of(_of_int),
        "as_scalar_type": _dtype,
        "as_memory_format": one_of(1, 2, 3, 4),
        "as_layout": _layout,
        "as_device": _device,
        "as_bool": boolean,
        "as_bools": list_of(boolean),
        "as_sym_bool": _of_bool,
        "as_sym_bools": list_of(_of_bool),
        "as_graph": recursive(lambda: record({"name": words.name, "graph": _graph})),
        "as_optional_tensors": list_of(_maybe_tensor),
        "as_sym_float": _of_float,
        "as_sym_floats": list_of(_of_float),
        "as_optional_tensor": _maybe_tensor,
        "as_complex": record({"real": number, "imag": number}),
        "as_nested_tensors": list_of(list_of(_tensor)),
        "as_int_lists": list_of(list_of(integer())),
        "as_float_lists": list_of(list_of(number)),
    }
)
_call_of = record(
    {
        "target": words.target,
        "inputs": list_of(
            record(
                {
                    "name": text(r"[A-Za-z0-9_]{0,100}", "an argument's name"),
                    "arg": _argument,
                    "kind": one_of(None, 0, 1, 2),
                },
                absent=("kind",),
            )
        ),
        "outputs": list_of(_argument),
        # Only what is kept as text: the other entries are looked up or parsed.
        "metadata": record(
            dict.fromkeys(("stack_trace", "nn_module_stack", "torch_fn"), _text),
            absent=("stack_trace", "nn_module_stack", "torch_fn"),
        ),
        "is_hop_single_tensor_return": optional(boolean),
        "name": optional(words.name),
    },
    absent=("is_hop_single_tensor_return", "name"),
)


def called(value: Any) -> None:
    """A call of an operator, with the switches off that make it draw random numbers or learn."""
    _call_of(value)
    given = {each["name"]: next(iter(each["arg"].items())) for each in value["inputs"]}
    if any(given.get(name) == ("as_bool", True) for name in ("train", "training")):
        raise Misfit("is in training mode; call eval() before exporting it")
    if given.get("dropout_p", ("as_none", True)) not in _NO_DROPOUT:
        raise Misfit("drops out at random; export it with a dropout of 0")
    if given.get("use_input_stats") == ("as_bool", True) and _is_tensor(given, "running_mean"):
        raise Misfit("changes its own statistics as it runs; call eval() before exporting it")


def _is_tensor(given: Mapping[str, tuple[str, Any]], name: str) -> bool:
    kind, value = given.get(name, ("as_none", True))
    return kind == "as_tensor" or (kind == "as_optional_tensor" and "as_tensor" in value)


_graph: Shape = record(
    {
        "inputs": list_of(_argument),
        "outputs": list_of(_argument),
        "nodes": list_of(called),
        "tensor_values": map_of(words.name, TENSOR),
        "sym_int_values": map_of(words.name, _size),
        "sym_bool_values": map_of(words.name, _sym_bool),
        "sym_float_values": map_of(words.name, _sym_float),
        "is_single_tensor_return": boolean,
        "custom_obj_values": record({}),
    },
    absent=("is_single_tensor_return", "custom_obj_values", "sym_float_values"),
)
_held = record({"name": words.name})
_given = record({"arg": union({"as_tensor": _tensor})})
_signature = record(
    {
        "input_specs": list_of(
            union(
                {
                    "user_input": _given,
                    "parameter": record({"arg": _held, "parameter_name": words.path}),
                    "buffer": record(
                        {"arg": _held, "buffer_name": words.path, "persistent": boolean}
                    ),
                    "tensor_constant": record({"arg": _held, "tensor_constant_name": words.path}),
                }
            )
        ),
        "output_specs": list_of(union({"user_output": _given})),
    }
)
_TREE: Shape = record(
    {
        "type": one_of(
            None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"
        ),
        "context": optional(_keys),
        "children_spec": list_of(recursive(lambda: _TREE)),
    }
)
_call = record(
    {
        "inputs": list_of(_argument),
        "outputs": list_of(_argument),
        "in_spec": _tree,
        "out_spec": _tree,
        "forward_arg_names": optional(list_of(words.name)),
    },
    absent=("forward_arg_names",),
)
PROGRAM: Shape = record(
    {
        "graph_module": record(
            {
                "graph": _graph,
                "signature": _signature,
                "module_call_graph": list_of(
                    record({"fqn": _call_path, "signature": optional(_call)}, absent=("signature",))
                ),
                "metadata": record({}),
                "treespec_namedtuple_fields": record({}),
            },
            absent=("metadata", "treespec_namedtuple_fields"),
        ),
        "opset_version": map_of(words.identifier, integer(0, 10_000)),
        "range_constraints": map_of(
            words.symbol,
            record({"min_val": optional(integer()), "max_val": optional(integer())}),
        ),
        "schema_version": record({"major": integer(), "minor": integer()}),
        "verifiers": list_of(one_of("ATEN", "TRAINING")),
        "torch_version": _line,
        "guards_code": list_of(words.guard),
    },
    absent=("verifiers", "torch_version", "guards_code"),
)


def _check_version(document: Any) -> None:
    """A newer schema has fields that would be refused one by one: say why instead."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    record({"major": integer(), "minor": integer()})(version)
    assert isinstance(version, dict)
    major, minor = version["major"], version["minor"]
    if major != SCHEMA[0] or minor > SCHEMA[1]:
        raise Misfit(
            f"has schema {major}.{minor} of torch.export; here {SCHEMA[0]}.0 to "
            f"{SCHEMA[0]}.{SCHEMA[1]} are read"
        )


def _info(graph: Any, signature: Any) -> ProgramInfo:
    tensors = graph["tensor_values"]
    given: list[str] = []
    weights: dict[str, TensorLayout] = {}
    constants: dict[str, TensorLayout] = {}
    for spec in signature["input_specs"]:
        ((kind, held),) = spec.items()
        if kind == "user_input":
            given.append(held["arg"]["as_tensor"]["name"])
            continue
        stays = kind == "parameter" or held.get("persistent", False)
        name = held[f"{kind}_name"]
        (weights if stays else constants)[name] = layout_of(_value(tensors, held["arg"]["name"]))
    specs = signature["output_specs"]
    gives = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in specs]
    if not given or not gives:
        raise Misfit(f"has no {'outputs' if given else 'inputs'}")
    batch = (_value(tensors, given[0])["sizes"] or [None])[0]
    return ProgramInfo(
        inputs=tuple(_row(tensors, name, batch) for name in given),
        outputs=tuple(_row(tensors, name, batch) for name in gives),
        weights=weights,
        constants=constants,
    )


def _value(tensors: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in tensors:
        raise Misfit(f"does not say what the tensor {name!r} is")
    found: Mapping[str, Any] = tensors[name]
    return found


def _row(tensors: Mapping[str, Any], name: str, batch: Any) -> TensorSpec:
    """An input or output without its batch axis."""
    tensor = _value(tensors, name)
    if tensor["dtype"] not in _DTYPES:
        raise Misfit(f"has {name!r} of a type that is not served")
    first, *inner = tensor["sizes"] or [None]
    if first is None or "as_expr" not in first:
        raise Misfit(f"has {name!r} with a fixed first axis; the batch must vary")
    if first["as_expr"]["expr_str"] != batch["as_expr"]["expr_str"]:
        raise Misfit(f"has {name!r} with another first axis than the batch")
    try:
        shape = tuple(fixed_size(size) for size in inner)
    except Misfit:
        raise Misfit(f"has {name!r} with another axis that varies than the batch") from None
    return TensorSpec(name=name, dtype=_DTYPES[tensor["dtype"]], shape=shape)
