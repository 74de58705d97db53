"""Tests that need an NVIDIA GPU.

They are skipped, and say so, where there is none. CI has none, so a change to what they cover has
to be tested on a machine that has one: ``pytest -m gpu -rs``.
"""
