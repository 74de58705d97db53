"""Residency: what operators said of what is loaded, as decisions go by it.

The catalog's rules come in. What goes out: which worker holds what is pinned (``pins.py``), how
many workers that takes (``pinned_fleet.py``), and what becomes of a plan that is frozen
(``frozen_plan.py``); what pins leave to others (``pinned_room.py``), and whether a rule can be
followed at all (``possible.py``). That a forbidden variant answers nothing is a part of the one
rule in ``planner.selection.eligibility``.

It may import ``planner.types``, ``planner.sentences``, ``planner.selection`` and ``variants``.
"""
