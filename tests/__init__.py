"""Tests; this file is read before any of them, and before numpy."""

import os

# Matrices in tests are small, and test processes share the processors: a second thread of numpy's
# linear algebra would only wait, and it waits by computing. The processor time of what fits models
# (``tests/profiler/sampling``) halves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
