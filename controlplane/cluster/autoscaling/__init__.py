"""Ray's autoscaler: whether there is one, which nodes it may start, and how it is asked for them.

Comes in: the file that a cluster was started with, and how many workers a plan wants. Goes out: the
bundles that are asked for, nodes that drain, and sentences about what cannot be asked for.

Read ``node_types`` (what an autoscaler may start), ``node_packing`` (how many workers that makes)
and ``node_requests`` (what to ask for), all without Ray, then ``ray_autoscaler`` (the calls) and
``monitor`` (the autoscaler's own process).
"""
