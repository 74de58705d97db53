"""Headroom: how much more than is asked now the workers could serve.

In: what a tick of the control loop observes. Out: factors on the demand, of all of it together and
of each task by itself (``growth``). It asks the solver what sizing asks it, for ever other demands,
and allows for how much arrivals vary (``dispersion``).

May import what ``planner.reconcile`` may, and ``planner.reconcile``.
"""
