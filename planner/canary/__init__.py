"""Queries that not every version of their task answers: canaries, which prove themselves on a share
of them, and queries that name a version or that only some versions hold.

In: request ids, snapshots, demand, counts. Out: whether a query is drawn, a choice among the
version's variants, the demand with its share, a verdict.

Read ``some_versions`` (the part of a snapshot that may answer), ``draw`` (which queries),
``diversion`` (which of its variants), ``demand`` (what plans have to provide), ``sequences`` (how
sure a share is, however often one looks) and ``judge`` (worse, good or not yet).

Imports ``planner.types``, ``planner.selection`` and what they stand on.
"""
