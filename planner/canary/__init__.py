"""Canaries: which queries go to a new version, what is planned for it, and what the outcome shows.

In: request ids, snapshots, demand, counts. Out: whether a query is drawn, a choice among the
version's variants, the demand with its share, a verdict.

Read ``draw`` (which queries), ``diversion`` (which of its variants), ``demand`` (what plans have to
provide), ``sequences`` (how sure a share is, however often one looks) and ``judge`` (worse, good or
not yet).

Imports ``planner.types``, ``planner.selection`` and what they stand on.
"""
