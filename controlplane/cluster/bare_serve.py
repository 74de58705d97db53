"""Ray Serve, imported without pandas: importing this module is what does it.

Ray Serve 2.60 imports pandas where it is installed, and it is, as OR-Tools needs it for an
interface that planning does not use. Serve uses it for one thing, encoding a data frame that an
HTTP handler of its own returns; there is none here. It takes 26 MiB and 0.2 s of processor in each
of five processes (decision 24). What imports pandas afterwards gets it.
"""

import sys
from contextlib import suppress

if "pandas" not in sys.modules:
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):  # without Ray, those who need it say so
            import ray.serve  # noqa: F401
    finally:
        del sys.modules["pandas"]
