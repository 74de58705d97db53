"""Feedback: what clients say of answers, beside the accuracy that was measured, and what answers
say by themselves.

In: counts of right and wrong rows, of all and by class, a catalog; counts of answers by class. Out:
whether a variant is as accurate as it was measured to be, by which accuracy queries are answered
and plans are made, and the catalog with it; whether answers are divided among the classes as they
were.

Read ``evidence`` (what was said lately of one variant, and whether that is chance), ``by_class``
(how sure a mean over classes is) and ``accuracies`` (the catalog that counts). Then ``moved``
(whether shares of classes are the same) and ``answers`` (of one variant, over time), which need
nobody's word.

Imports ``planner.canary.sequences`` and what stands before it, and of ``variants`` the metrics. No
clock: times are arguments, in s.
"""
