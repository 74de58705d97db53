"""What placement does beside the plan.

``copies.py`` has what classes of the demand need be held once more wherever there is room. It may
import ``planner.reconcile.worker_memory``, ``demand_and_offers`` and ``diff``.
"""
