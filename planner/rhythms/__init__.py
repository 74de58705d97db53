"""Rhythms: what a batch takes that follows on another, told from what it takes after a pause.

Read ``busy_time``; ``bounded`` is a tool of it. ``shared_slowness`` and ``shared_pause`` tell what
variants that run say of those that do not. It imports nothing of ours. Deterministic; knows no
clock.
"""
