"""What becomes of the routes that are there: what they serve and take, and whether they stay.

Read ``routes.py`` (what routes serve, and the same routes for another demand) and then
``worth.py`` (what they are worth by what plans are for), and ``best.py`` (what no routes can beat).

It may import ``planner.reconcile.problem_builder`` and what that may import.
"""
