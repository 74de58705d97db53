"""Residency: what operators say of what is loaded, on its way into the catalog and to people.

``orders.py`` checks a rule, writes it and tells it; ``standing.py`` says what has become of it. The
control API and the model repository of the protocol v2 stand on both. What follows from a rule is
decided in ``planner.residency``.
"""
