"""Execution: what a worker does with a query, and how variants come into its memory and leave it.

In come queries as frames, and load specs; out go replies and the worker's status. Which query is
admitted, which batch runs and which variant leaves is decided by the planner's pure functions; here
they are acted upon, on one event loop with two threads beside it, or three where artifacts are
fetched.

Read ``replicas`` first (one record per variant, and the query as ``Job``), then ``executor`` (which
queries are taken in), ``batch_runner`` (how they are run and answered), ``outcomes`` and
``running`` (one batch), ``replies`` and the folder ``listening`` (the socket). Then ``loader``
(from a load spec to a ready replica) with ``load_thread``, ``artifacts`` (files that are seen, or
copies), ``room`` and ``usage`` (what leaves for it), ``failures``, ``absent`` and ``history`` (what
is kept about loads), and ``lone_batches`` (checking a profile).

May import: ``workers.channel``, ``runtimes`` and ``process`` beside it; ``planner``, ``variants``.
"""
