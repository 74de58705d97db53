"""How soon feedback shows that a variant is not what was measured, and how often it seems so.

``python -m tests.bench.feedback.found``; where each class counts alike
``python -m tests.bench.feedback.by_class``
"""
