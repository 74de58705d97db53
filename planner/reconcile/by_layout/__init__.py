"""What a tick does where the machine may be split in several ways.

``layout_choice`` says which layout it is to have, and ``layout_change`` which workers stay until
others can take over; ``change_limits`` remembers, from turn to turn, what was tried in vain. It
may import ``planner.layouts``, ``planner.reconcile.sizing`` and
``demand_assignment``, and what those may import.
"""
