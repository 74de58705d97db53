"""What this machine's processor computes by itself, found out without importing any back end."""

import platform
from pathlib import Path

from variants.types import Precision

CPUINFO = Path("/proc/cpuinfo")

_COMPUTES: dict[Precision, dict[str, tuple[str, ...]]] = {
    Precision.BF16: {"x86_64": ("avx512_bf16", "amx_bf16"), "aarch64": ("bf16",)},
    Precision.FP16: {"x86_64": ("avx512_fp16", "amx_fp16"), "aarch64": ("asimdhp",)},
}
"""Instructions by kind of machine, as Linux calls them; any of them will do."""


def missing_arithmetic(
    precision: Precision, cpuinfo: Path = CPUINFO, machine: str = platform.machine()
) -> str | None:
    """Why a precision is of no use on this processor, or None where it is.

    Back ends run 16-bit variants on every processor: where it has no such instructions, they
    convert to fp32 around each operator and are slower than fp32 itself.
    """
    wanted = _COMPUTES.get(precision, {}).get(machine, ())
    if precision not in _COMPUTES or set(wanted) & processor_flags(cpuinfo):
        return None
    named = " or ".join(wanted) or precision.value
    return f"this CPU does not compute in {precision.value} (no {named})"


def processor_flags(cpuinfo: Path = CPUINFO) -> set[str]:
    """Instruction sets of the first processor; on ARM they are called features."""
    return set(_told(("flags", "Features"), cpuinfo).split())


def processor_model(cpuinfo: Path = CPUINFO) -> str:
    """What the first processor is called; empty where that is not said."""
    return _told(("model name",), cpuinfo)


def _told(names: tuple[str, ...], cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2] for line in lines if line.startswith(names))
    return next(found, "").strip()
