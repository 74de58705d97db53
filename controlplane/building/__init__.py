"""Building the variants of one model version, each kind in a sandboxed process.

In: what builders may draw on (``Sources``) and the kinds that are asked for. Out: built variants
that are not measured yet, and those that were skipped, each with its reason.

Read ``types`` (what a registration takes and gives), then ``family``, then ``meter`` (progress).

Imports ``profiler`` and ``variants``.
"""
