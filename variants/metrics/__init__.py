"""Metrics: what the accuracy of a task's models means, and how it is found.

In: a model's first output for some rows, and the labels or targets of these rows. Out: an accuracy
in [0, 1], which rows are right where it counts rows, and how alike two models answer. Read
``metric`` (which metrics there are, how they are written, what each needs), then ``scoring`` (what
they compute). ``positions`` are what is judged where a row has an answer for each of them, and
``answered`` counts into which classes answers fall.

Imports ``variants.errors``, ``variants.figures`` and ``variants.types``, and numpy.
"""
