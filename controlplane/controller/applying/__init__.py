"""What is done at workers and at Ray Serve: ``plan_applier`` (actions, what fails, and what workers
are told) with ``told_targets`` (what each of them knows of the plan already).
"""
