"""What is so only where all runs on one machine, under a Ray that was started here.

``single_machine`` (which processes of Ray are not started) with ``idle_agent`` (what stands in for
one of them), and ``spare_room`` (cores that are kept for one more worker while others are
replaced).
"""
