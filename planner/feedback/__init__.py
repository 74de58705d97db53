"""Feedback: what clients say of answers, beside the accuracy that was measured.

In: counts of right and wrong rows, of all and by class, a catalog. Out: whether a variant is as
accurate as it was measured to be, by which accuracy queries are answered and plans are made, and
the catalog with it.

Read ``evidence`` (what was said lately of one variant, and whether that is chance), ``by_class``
(how sure a mean over classes is) and ``accuracies`` (the catalog that counts).

Imports ``planner.canary.sequences`` and what stands before it, and of ``variants`` the metrics. No
clock: times are arguments, in s.
"""
