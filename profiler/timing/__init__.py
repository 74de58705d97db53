"""Timing on machines that others use too: which times of runs count, and what they say.

``contention`` asks the scheduler whether other processes took processor time from a run.
``core_speed`` times a short loop to see whether a core is slower than it was. ``statistics`` turns
the times that count into percentiles and the median's confidence interval. ``pace`` foresees how
long the rest of some work takes. Times are in seconds, latencies in milliseconds.

Imports ``variants.types``.
"""
