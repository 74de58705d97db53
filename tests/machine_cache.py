"""What tests make once on a machine, for all their runs: kept under the user's cache.

``MODELLESS_TEST_CACHE`` puts it elsewhere. What is kept is named after all that it depends on, so a
change of that makes it anew.

``python -m tests.machine_cache`` makes what takes longest, ahead of the tests.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controlplane.registry.example_models import train_digits

ROOT = Path(__file__).parents[1]
UNUSED_S = 7 * 24 * 3_600.0
"""What was not used for so long is removed."""


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


def compiled_folder() -> Path:
    """A folder for programs that PyTorch compiles; changed code that compiles has another one.

    Compiling a small one takes half a minute of one core.
    """
    compiling = sorted((ROOT / "workers" / "runtimes" / "pytorch").glob("*.py"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in compiling)).hexdigest()
    with _locked("compiled") as cache:
        folder = cache / f"compiled-{digest[:16]}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
        for other in cache.glob("compiled-*"):
            if other.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(other)
    return folder


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """The cache's folder, while no other process makes a thing of that name."""
    cache = Path(os.environ.get("MODELLESS_TEST_CACHE") or Path.home() / ".cache/modelless-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


if __name__ == "__main__":
    from tests.contracts.contenders import compile_all

    digits_folder()
    compile_all()
