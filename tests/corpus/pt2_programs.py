"""Archives that are refused for what their program says."""

import json
from pathlib import Path
from typing import Any

from tests.corpus.case import Step, bad
from tests.corpus.pt2 import (
    PROGRAM,
    SAID,
    call,
    changed,
    graph_of,
    meta,
    program,
    with_program,
)

# -- the program ---------------------------------------------------------------------------------


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} is not JSON$")
def program_that_is_no_json(folder: Path) -> Path:
    return changed(folder, **{PROGRAM: b"{'graph_module': print}"})


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} is nested too deeply$")
def json_nested_without_end(folder: Path) -> Path:
    return changed(folder, **{PROGRAM: b"[" * 2**20})


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} is nested too deeply$")
def json_nested_deeper_than_programs_are(folder: Path) -> Path:
    return changed(folder, **{PROGRAM: b"[" * 90 + b"]" * 90})


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} has 33 MiB, more than the 32 allowed$")
def program_without_end(folder: Path) -> Path:
    return changed(folder, **{PROGRAM: b" " * (33 * 2**20)})


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*expr_str is .*, which is no arithmetic on sizes$")
def size_that_is_code(folder: Path) -> Path:
    """torch evaluates this text as Python while it loads a program."""
    code = "(__import__('os').getpid(), Symbol('s0', positive=True, integer=True))[1]"

    def edit(document: Any) -> None:
        graph_of(document)["tensor_values"]["pixels"]["sizes"][0] = {
            "as_expr": {"expr_str": code, "hint": None}
        }

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*expr_str is .*, which is no arithmetic on sizes$")
def size_that_takes_for_ever(folder: Path) -> Path:
    code = "Pow(Integer(9), Pow(Integer(9), Integer(8)))"

    def edit(document: Any) -> None:
        graph_of(document)["tensor_values"]["pixels"]["sizes"][0] = {"as_expr": {"expr_str": code}}

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: guards_code\[0\] is .*, which is no condition on sizes$")
def guard_that_is_code(folder: Path) -> Path:
    """torch writes guards into a function and executes its source."""
    code = "__import__('os').getpid() == 0"
    return with_program(folder, lambda document: document["guards_code"].append(code))


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*name is .*, which is not a name$")
def name_that_is_code(folder: Path) -> Path:
    """torch writes names into the source of the module's forward."""
    text = json.dumps(program()).replace('"softmax"', "\"x = __import__('os').getpid(); x\"")
    return changed(folder, **{PROGRAM: text.encode()})


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*target is 'torch.os.system', which is no operator")
def call_of_the_system(folder: Path) -> Path:
    def edit(document: Any) -> None:
        graph_of(document)["nodes"][0]["target"] = "torch.os.system"

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*target is 'torch.ops.load_library', which is no operator")
def call_that_loads_a_library(folder: Path) -> Path:
    def edit(document: Any) -> None:
        graph_of(document)["nodes"][0]["target"] = "torch.ops.load_library"

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*target is 'torch.ops.aten.from_file.default', which is no")
def operator_that_reads_files(folder: Path) -> Path:
    def edit(document: Any) -> None:
        graph_of(document)["nodes"][0] = call(
            "torch.ops.aten.from_file.default", "matmul", filename={"as_string": "/etc/passwd"}
        )

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*is of the kind 'as_custom_obj', which is not taken here$")
def argument_that_is_an_object(folder: Path) -> Path:
    def edit(document: Any) -> None:
        argument = graph_of(document)["nodes"][0]["inputs"][0]
        argument["arg"] = {"as_custom_obj": {"name": "obj", "class_fqn": "__torch__.Evil"}}

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} has schema 9\.0 of torch.export; here 8\.0 to 8\.20 are read$")
def program_of_the_future(folder: Path) -> Path:
    def edit(document: Any) -> None:
        document["schema_version"] = {"major": 9, "minor": 0}

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM} has 'pixels' with a fixed first axis; the batch must vary$")
def program_of_a_fixed_batch(folder: Path) -> Path:
    def edit(document: Any) -> None:
        graph_of(document)["tensor_values"]["pixels"] = meta(8, 4)

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*is of the kind 'buffer_mutation', which is not taken here$")
def program_that_changes_itself(folder: Path) -> Path:
    def edit(document: Any) -> None:
        document["graph_module"]["signature"]["output_specs"].append(
            {"buffer_mutation": {"arg": {"name": "matmul"}, "buffer_name": "mean"}}
        )

    return with_program(folder, edit)


@bad(Step.CHECK, rf"{SAID}/{PROGRAM}: .*device.type is 'cuda', not 'cpu'$")
def program_of_another_device(folder: Path) -> Path:
    def edit(document: Any) -> None:
        graph_of(document)["tensor_values"]["matmul"]["device"]["type"] = "cuda"

    return with_program(folder, edit)
