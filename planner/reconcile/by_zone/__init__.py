"""The demand of each zone on the workers of that zone first: ``planner.zones.division`` for a tick.

It may import ``planner.zones``, ``planner.reconcile.demand_assignment`` and what that may import.
"""
