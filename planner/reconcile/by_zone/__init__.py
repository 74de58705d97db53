"""What a tick does where there are zones: the demand of each on its own workers first, and as many
workers near it as its SLOs need.

Read ``zoned_assignment`` and ``zoned_sizing``.

It may import ``planner.zones``, ``planner.reconcile.demand_assignment``,
``planner.reconcile.kept``, ``planner.reconcile.sizing`` and what these may import.
"""
