"""Benchmarks on a machine with an NVIDIA GPU."""
