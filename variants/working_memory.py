"""Working memory: what a batch takes while it runs, which the variants of a worker share.

A worker runs one batch at a time, so what batches take has to be there once and not once for each
variant. It lies beside the memory that variants are loaded into, and is so large that most need no
more. A variant that needs more counts with the rest.
"""

from variants.types import DeviceKind, Profile

PART = 0.125
"""Of the memory that variants are loaded into; so much may come on top of it."""
MOST_MIB = 1_024.0
"""Hardly a batch takes more."""


def shared_mib(kind: DeviceKind) -> float:
    """Working memory of a worker of a kind, in MiB. On a GPU each variant has its own."""
    return 0.0 if kind.gpu is not None else min(PART * kind.memory_mib, MOST_MIB)


def own_working_mib(profile: Profile, kind: DeviceKind) -> float:
    """What running a variant takes beyond what variants share, in MiB; 0 where they share none."""
    return max(0.0, (profile.working_mib or 0.0) - shared_mib(kind))


def held_mib(profile: Profile) -> float:
    """What a variant takes while none of its batches runs, in MiB."""
    return profile.memory_mib - (profile.working_mib or 0.0)


def counted_mib(profile: Profile, kind: DeviceKind | None) -> float:
    """What a variant counts with in the memory of a worker of a kind, in MiB; as if it were alone
    where the kind is not known.

    The sum over what is loaded may be ``kind.memory_mib``. What is really taken is at most
    ``shared_mib`` more: the largest of all batches is, and the rest of it is counted.
    """
    return (
        profile.memory_mib if kind is None else held_mib(profile) + own_working_mib(profile, kind)
    )
