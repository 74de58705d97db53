"""The trained digits family for tests: made once on a machine, for all runs of the tests."""

import fcntl
import os
from pathlib import Path

from controlplane.examples import train_digits


def digits_folder() -> Path:
    """A folder with the family, under the user's cache; trained on first use.

    ``MODELLESS_TEST_CACHE`` puts it elsewhere.
    """
    cache = Path(os.environ.get("MODELLESS_TEST_CACHE") or Path.home() / ".cache/modelless-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "digits.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        train_digits(cache / "digits")
    return cache / "digits"
