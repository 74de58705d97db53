"""Compression: smaller models made of larger ones, on the ONNX graph itself.

In: a model as ONNX, rows that it was trained on, and for distillation a larger model. Out: a
smaller ONNX model of the same signature, tuned where there are training rows.

The builders are ``lowrank``, ``pruning`` and ``distillation``. They share ``graph`` (reads, runs
and counts a graph) and ``scores`` (what a model answers). Low rank: ``factors`` splits a linear
layer in two. Pruning: ``channel_dependencies`` and ``channels`` find which channels have to leave
together, ``importance`` which matter least, ``surgery`` takes them out. Tuning: ``trainable`` turns
a graph into a torch module and back, with ``operators`` and ``layers``; ``training`` tunes it.

Imports ``variants.builders`` and what these may; torch only where a module's first line says so.
"""
