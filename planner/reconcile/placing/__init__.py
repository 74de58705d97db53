"""What placement does beside the plan.

``orders.py`` says in which order a memory that is short takes what is planned and what is asked
for, ``copies.py`` has what classes of the demand need be held once more wherever there is room,
``beside.py`` says what may be asked for beside the plan, and ``placements.py`` makes placements of
what workers are to hold. They may import ``planner.reconcile.worker_memory``,
``demand_and_offers``, ``task_shares``, ``diff`` and ``planner.eviction``.
"""
