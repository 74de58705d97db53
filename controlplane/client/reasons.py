"""Why a module was not exported, in one sentence, where PyTorch takes a page."""

import re
import traceback
from pathlib import Path
from typing import Any


def why_not_traced(error: Exception) -> str:
    """One sentence in place of the page that ``torch.export`` writes about a failure."""
    text, where = str(error), place(error)
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return (
            f"forward decides by the values of a tensor{where}, which no exported program can; "
            "torch.where computes both sides and picks"
        )
    if fixed := re.search(r"specialized it to be a constant \((\d+)\)", text):
        return (
            f"forward is bound to the {fixed[1]} rows of the examples; take the batch from the "
            "inputs, as in x.view(x.shape[0], ...)"
        )
    if guard := re.search(r"satisfy the generated guard (.+)", text):
        return f"forward does not take every number of rows: {guard[1].rstrip('.')}"
    return f"torch.export cannot trace the module: {first_line(error)}{where}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__


def place(error: BaseException) -> str:
    """The last line outside of PyTorch and of this package that an error came through."""
    import torch

    foreign = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parent}/", "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(foreign):
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def place_of(node: Any) -> str:
    """The last line outside of PyTorch that a node of a graph comes from."""
    import torch

    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = f"{Path(torch.__file__).parent}/"
    outside = [(name, line) for name, line in found if not name.startswith(own)]
    return f" at {Path(outside[-1][0]).name}:{outside[-1][1]}" if outside else ""
