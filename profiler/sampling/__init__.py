"""Sampling: measure a part of a model's configurations, predict the others, and say how surely.

In: a space (kinds of variants x threads x batch sizes) and latencies as they are measured. Out:
what to measure next, and a latency surface: a measured or predicted latency for each configuration.

Read ``space``, then ``search`` (the loop), ``costmodel`` (the prediction: a Gaussian process over
logarithms of milliseconds), ``prior`` (what is expected before anything was measured) and
``latency_surface`` (the result).

Imports ``variants.types``.
"""
