"""What tests make once on a machine, for all their runs: kept under the user's cache.

``MODELLESS_TEST_CACHE`` puts it elsewhere. What is kept is named after all that it depends on, so a
change of that makes it anew.

``python -m tests.machine_cache`` makes what takes longest, ahead of the tests.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controlplane.registry.example_models import train_digits


def digits_folder() -> Path:
    """A folder with the trained digits family; it names its recipe, and is made anew for another.

    Training takes three quarters of a minute of one core.
    """
    with _locked("digits") as cache:
        train_digits(cache / "digits")
    return cache / "digits"


def kept(name: str, depends_on: Sequence[str], make: Callable[[], str]) -> str:
    """What ``make`` gives, or gave earlier from the same ``depends_on``: texts, such as sources."""
    digest = hashlib.sha256("\0".join(depends_on).encode()).hexdigest()[:16]
    with _locked(name) as cache:
        file = cache / f"{name}-{digest}"
        if not file.exists():
            made = make()
            for older in cache.glob(f"{name}-*"):
                older.unlink()
            partial = cache / f"{name}.partial"
            partial.write_text(made)
            partial.rename(file)
        return file.read_text()


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """The cache's folder, while no other process makes a thing of that name."""
    cache = Path(os.environ.get("MODELLESS_TEST_CACHE") or Path.home() / ".cache/modelless-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


if __name__ == "__main__":
    digits_folder()
