"""Rhythms: what a batch takes that follows on another, told from what it takes after a pause.

It imports nothing of ours. Deterministic; knows no clock.
"""
