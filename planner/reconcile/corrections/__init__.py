"""What is learned of profiles from the batches that workers run.

``correction.py`` is of one profile: what workers say of it, and what of that is taken over.
``by_kind.py`` is what the variants of a device kind that run show of those that do not. They may
import ``planner.reconcile.live_profiles`` and ``planner.rhythms``.
"""
