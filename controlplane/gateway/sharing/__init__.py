"""Sharing: equal queries of a task get one answer, where an operator has allowed that.

In comes a parsed query of such a task, from ``QueryPath.start``. Out goes an answer that is kept
already, that of a run that an equal query has begun, or a query in flight like any other, whose
answer is kept. What equal means is one rule (``may_get``) and one hash (``content_key``).

Read ``content`` (when two queries are equal), ``kept_answers`` (what is kept, and how much of it),
``shared_flight`` (queries that share a run) and ``shares`` (which of the three it is).

It may import ``controlplane.gateway.query`` and ``counters``; nothing of the query path imports it.
"""
