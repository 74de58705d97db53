"""All cases: importing a file of them adds its own."""

from tests.corpus import (  # noqa: F401
    behaviours,
    folders,
    graphs,
    npz,
    pt2_layout,
    pt2_members,
    pt2_programs,
    signatures,
    weights,
)
from tests.corpus.case import CASES

__all__ = ["CASES"]
