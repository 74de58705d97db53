"""Profiles that are missing, doubted or contradicted, and how they are measured while it serves.

``reprofiling`` finds those that batches contradict or queries rely on, ``profile_checks`` has
workers run a few batches of what none has run. ``due_orders`` finds what is to be measured,
``measuring_jobs`` knows what is being measured and where there is room for more, and ``measuring``
has it done and keeps what comes of it.
"""
