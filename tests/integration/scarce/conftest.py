"""One deployment for all modules of this folder: a worker short of memory, on a small disk.

``test_cold.py`` comes first: it wants the memory as a start leaves it.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.disks import small_disk
from tests.integration.conftest import Registered
from tests.integration.deployment import Deployment, deployed, short_directory
from variants.catalog.sql import open_catalog

DISK_KIB = 96 * 1024


@pytest.fixture(scope="package")
def scarce(registered: Registered) -> Iterator[Deployment]:
    """One worker with room for the most accurate variant, but not for all others beside it.

    Where no disk can be mounted, the state is on that of the machine.
    """
    with ExitStack() as stack:
        try:
            home = stack.enter_context(small_disk(DISK_KIB))
        except pytest.skip.Exception:
            home = stack.enter_context(short_directory())
        shutil.copytree(registered.home, home / "s")
        with closing(open_catalog(f"sqlite:///{home / 's' / 'catalog.db'}")) as catalog:
            known = catalog.snapshot()
        sizes = {profile.variant: profile.memory_mib for profile in known.profiles}
        best = max(variant.accuracy for variant in known.variants)
        room = min(sizes[v.name] for v in known.variants if v.accuracy == best) * 1.02
        yield stack.enter_context(deployed(home / "s", worker_memory_mib=room))
