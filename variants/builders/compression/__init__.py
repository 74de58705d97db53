"""Smaller models of larger ones, on the ONNX graph itself.

``graph`` reads, runs and counts; ``trainable`` turns a graph into a torch module and back, and
``training`` tunes it; ``tracing`` finds which channels have to leave together, ``importance`` which
matter least, and ``surgery`` takes them out; ``factors`` splits a linear layer in two. The builders
beside this folder put them together.
"""
