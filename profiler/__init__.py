"""Measuring what variants cost: accuracy, latency by batch size, memory, load time and energy.

In: a variant's artifact, rows, and the machine. Out: latency points with percentiles, memory in
MiB, seconds to load, accuracy in [0, 1]; and predictions for what would take too long to measure.

Read ``sandbox`` first (a foreign model runs only in a limited child process), then ``timing`` (when
a time counts, and how sure a median is), ``evaluation`` (accuracy on labelled rows) and
``sampling`` (measure a part, predict the rest). ``fingerprint`` says what a profile was measured
on; ``hardware_counters`` reads memory and energy; ``learned_forecaster`` learns the demand of
tasks by its ``arrival_features``; ``one_thread`` keeps what computes off the cores of queries.

Imports ``variants``, ``planner`` and ``workers``.
"""
