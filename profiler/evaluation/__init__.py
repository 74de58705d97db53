"""Evaluation: how often a variant is right.

In: an ``.npz`` file with one array ``(rows, *shape)`` for each input and integer labels
``(rows,)``. Out: accuracy in [0, 1] and agreement with the model itself. Read ``labelled_rows``
(reading and splitting files), then ``accuracy`` (running a variant over rows, and judging its
scores).

Imports ``variants`` and ``workers.runtimes``.
"""
