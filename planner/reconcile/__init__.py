"""Reconciliation: what a tick of the control loop changes.

An ``Observation`` comes in: the catalog, what the workers report, the demand now and expected, and
the plan so far. A ``Decision`` goes out: a plan and the actions that bring the workers nearer to
it.

Read ``tick.py``, the pipeline, and then its steps: ``fleet`` with ``sizing.py`` (how many workers,
or which layout), ``division.py`` with ``kept`` (whether the division that is there stays) and
``demand_assignment.py`` with ``problem_builder.py`` and ``matching.py`` (which worker serves what),
``placement.py`` with ``demand_and_offers.py``, ``worker_memory.py``, ``task_shares.py`` and
``placing`` (what each worker holds), ``replica_targets.py`` (what each replica is told of it),
``diff.py`` (the actions), ``explanation.py`` (why) and ``unchanged.py`` (when there is nothing to
decide).
``live_corrections.py`` with ``corrections`` and ``live_profiles.py`` is what is decided by while
live latency contradicts profiles, ``assigning`` how a solution becomes a division over workers,
``by_zone`` and ``by_layout`` what there is to do where there are zones or layouts.

It may import ``planner.types``, ``planner.latency_curve``, ``planner.live_model``,
``planner.interference``, ``planner.selection``, ``planner.solver``, ``planner.layouts``,
``planner.eviction`` and ``variants``.
"""
