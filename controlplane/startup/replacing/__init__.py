"""What ``modelless upgrade`` does: parts of a running installation are replaced one by one.

In: what serves now, and what is installed and set. Out: the same parts of the new release, with
queries answered meanwhile.

Read ``parts`` (what is replaced), ``upgrade`` (the order, the waiting, and what ends it),
``upgraded_parts`` (gateways, workers and the control loop, as it sees them) and ``served`` (what
serves meanwhile).
"""
