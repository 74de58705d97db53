"""Smaller models of larger ones, on the ONNX graph itself.

``graph`` reads, runs and counts; ``trainable`` turns a graph into a torch module and back;
``training`` tunes it; ``channels`` finds what has to leave together and ``surgery`` takes it out;
``factors`` splits a linear layer in two. The builders beside this folder put them together.
"""
