"""Nodes as the control loop sees them: those that join and leave, and those that are asked for.

Read ``node_watch`` (what no worker uses), ``kinds_now`` (kinds that come and go with their nodes),
``known_hosts`` (what nodes are, which profiles are true of) and ``node_counts`` (how many nodes a
plan needs, and those that go) with ``standing_request`` (what the autoscaler is asked for) and
``notices`` (of which Ray is told); ``startable`` (how many workers Serve is told of at a time) and
``lent_workers`` (one more while others are replaced).
"""
