"""Which limits of shared answers a catalog takes."""

from variants.errors import InvalidInput
from variants.types import Sharing

LONGEST_TTL_S = 7 * 86_400.0
MOST_MEMORY_MIB = 65_536.0


def check_sharing(sharing: Sharing | None, where: str) -> None:
    """Refuse limits that nobody can have meant.

    Args:
        where: what they are of, to be named in the sentence.

    Raises:
        InvalidInput: the time or the memory is outside its range.
    """
    if sharing is None:
        return
    if not 0.0 <= sharing.ttl_s <= LONGEST_TTL_S:
        raise InvalidInput(
            f"answers of {where} cannot be kept for {sharing.ttl_s:,g} s: it must be between 0 and "
            f"{LONGEST_TTL_S:,g}"
        )
    if not 0.0 < sharing.memory_mib <= MOST_MEMORY_MIB:
        raise InvalidInput(
            f"answers of {where} cannot have {sharing.memory_mib:,g} MiB: it must be above 0 and "
            f"at most {MOST_MEMORY_MIB:,g}"
        )
