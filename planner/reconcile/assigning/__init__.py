"""How a solution of the planning problem becomes a division over workers.

``widest`` looks for the plan that has most room, and ``routes_of_devices`` has workers become the
devices of a solution. It may import ``planner.reconcile.problem_builder``, ``matching`` and
``sizing``, and what those may import.
"""
