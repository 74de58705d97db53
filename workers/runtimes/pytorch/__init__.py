"""The PyTorch runtime: programs of ``torch.export`` as they are, or compiled ahead of time.

In: a ``.pt2`` archive that was checked. Out: arrays, as for every runtime. Read ``runtime``, then
``program`` (reads the archive without trusting it), ``source`` (writes its graph as one Python
function), ``compiling`` and ``packages`` (machine code, kept on the machine that it fits).

Imports ``variants`` and ``workers``; torch only when a runtime loads.
"""
