"""The catalog: what is registered, what was measured, what was planned, and what happened.

In: registrations, profiles, stages, plans, ticks and events. Out: consistent snapshots of them, and
the revision that tells whether something has changed.

Read ``protocol`` first: it is the contract that every implementation keeps, and one contract suite
runs over all of them. ``validity`` holds the checks before each write. ``memory`` is the
implementation in one process. The one in SQLite or PostgreSQL is ``sql`` with ``sql_profiles``
(what variants take), ``sql_tasks`` (what operators change of tasks and versions), ``sql_canaries``
and ``sql_planning``, over ``tables``, ``counters``, ``rows`` (values to rows and back),
``database`` (connections and failures), ``postgresql`` (a connection that does not wait without an
end), ``turns`` (of writers to SQLite) and ``migrations``. ``sql_snapshot`` reads snapshots, after
the first one by what ``changes`` has noted of each revision; ``known_objects`` has snapshots be
made of the objects of the one before.
``removal`` is what leaves it, and ``copying`` copies all of it.

Imports ``variants.types``, ``errors`` and ``figures``, and what a task may take and mean:
``images``, ``buckets``, ``texts`` and ``metrics``.
"""
