"""Feedback: what clients say of answers, beside the accuracy that was measured.

In: counts of right and wrong rows, a catalog. Out: whether a variant is as accurate as it was
measured to be, by which accuracy queries are answered and plans are made, and the catalog with it.

Read ``evidence`` (what was said lately of one variant, and whether that is chance) and
``accuracies`` (the catalog that counts).

Imports ``planner.canary.sequences`` and what stands before it. No clock: times are arguments, in s.
"""
