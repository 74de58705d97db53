"""Policies that a simulated fleet can run: our own, and those that were published."""
