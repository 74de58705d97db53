"""Frames of the tensor channel with bytes changed, as either side may get them from the other."""
