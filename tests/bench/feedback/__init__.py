"""How soon feedback shows that a variant is not what was measured, and how often it seems so.

``python -m tests.bench.feedback.found``
"""
