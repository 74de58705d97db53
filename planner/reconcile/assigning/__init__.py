"""How a solution of the planning problem becomes a division over workers.

``filled`` plans elsewhere what does not fill its batches on a device, ``widest`` looks for the plan
that has most room, and ``routes_of_devices`` has workers become the devices of a solution. They may
import ``planner.reconcile.problem_builder``, ``matching`` and ``sizing``, and what those may.
"""
