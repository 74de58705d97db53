"""Selection: which variant on which worker answers a query, or why none does.

The catalog and what the workers hold come in and become a ``Snapshot``. With it, a query becomes a
``Choice`` or a ``Refusal`` that names a reason for every variant.

Read ``snapshot.py`` with ``worker_index.py`` and ``frontier_index.py`` (what is prepared when
something changes), ``eligibility.py`` (the one rule of what may answer), ``select.py`` with
``load_balancing.py`` (the choice), ``plan_following.py`` with ``routes.py`` (the choice where there
is a plan): ``route_targets.py`` where it saves cost, ``prices.py`` with ``menus.py`` and
``open_batches.py`` where it is for accuracy, and there ``shedding.py``. Then ``refusal.py``,
``refusal_reasons.py`` and ``missing_workers.py``.

It may import ``planner.types``, ``planner.latency_table``, ``planner.eviction``,
``planner.sentences``, ``planner.worker_starts``, ``planner.energy``, ``planner.upper_hull``, the
SLO classes of ``planner.forecasting.demand``, and ``variants``. ``solver``, ``reconcile`` and
``policies`` build on it.
"""
