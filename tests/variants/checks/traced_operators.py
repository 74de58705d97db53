"""The operators in what exporting writes of the models of ``tests/torch_models.py``.

Tracing them takes half a minute, and what it finds depends on nothing but PyTorch, the models and
how programs are made functional. So it is kept with the tests, for one state of these:

    python -m tests.variants.checks.traced_operators

writes it anew. With another state a machine traces once.
"""

import ast
import gc
import hashlib
import json
import warnings
from pathlib import Path

import torch

from controlplane.client.exporting import functional
from controlplane.client.exporting.functional import without_effects
from tests import torch_models
from tests.machine_cache import kept
from tests.torch_models import MODULES

FILE = Path(__file__).parents[2] / "cases" / "operators" / "traced.json"


def state() -> str:
    """What tracing depends on: PyTorch, for whatever device it was built, and these programs."""
    sources = (torch_models.__file__, functional.__file__, __file__)
    programs = (program_of(Path(source or "").read_text()) for source in sources)
    texts = (torch.__version__.partition("+")[0], *programs)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def program_of(source: str) -> str:
    """A source without its comments and without texts that stand by themselves."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(...)
    return ast.unparse(tree)


def written() -> set[str]:
    """What tracing finds; from the file, or from what this machine has traced before."""
    found = json.loads(FILE.read_text())
    if found["of"] == state():
        return set(found["operators"])
    return set(json.loads(kept("operators", (state(),), lambda: json.dumps(sorted(traced())))))


def traced() -> set[str]:
    """What tracing makes it keeps, and the garbage collector would look through it for a quarter of
    the time."""
    gc.disable()
    try:
        return _traced()
    finally:
        gc.enable()


def _traced() -> set[str]:
    found: set[str] = set()
    for make in MODULES.values():
        torch.manual_seed(0)
        module, example = make()
        batch = ({0: torch.export.Dim("batch")},)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(module.eval(), (example,), dynamic_shapes=batch)
            for one in (program, without_effects(program)):
                found |= {str(n.target) for n in one.graph.nodes if n.op == "call_function"}
    return {name.removeprefix("aten.") for name in found if name.startswith("aten.")}


if __name__ == "__main__":
    FILE.write_text(json.dumps({"of": state(), "operators": sorted(traced())}, indent=1) + "\n")
