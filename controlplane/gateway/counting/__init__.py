"""What a gateway counts of the queries that it takes.

``counters`` has all of it, and adds up those of the gateways that share its port. ``task_counters``
has what is counted of a task and its variants, ``client_counters`` what is counted of who asks.
"""
