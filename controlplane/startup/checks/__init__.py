"""The checks of ``modelless doctor``, one module for each part of an installation.

Comes in: settings. Goes out: findings, each with what to do about it. A check starts and changes
nothing. Read ``finding`` first, then ``configuration``, ``machine``, ``state``, ``services`` and
``serving``; ``controlplane.startup.doctor`` lists the checks in the order in which their problems
would be mended.
"""
