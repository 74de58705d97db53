"""The fleet that a turn of the control loop wants.

``wanted.py`` says how many workers of each kind there are to be, by inventory, layout or size
(``planner.reconcile.sizing``), who of those that are there goes, and which steps can be made now.
"""
