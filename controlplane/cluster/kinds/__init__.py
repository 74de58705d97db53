"""The device kinds of a cluster's nodes, decided without Ray: from facts of nodes to slices.

Read ``node`` (what is known of one), ``found_kinds`` (which kinds nodes are when an installation
starts), ``joined_kinds`` (which those are that join or leave while it runs) and ``sightings``
(which nodes have which kinds now, and what an operator could do about the others).

It imports slices and GPUs, and nothing of Ray.
"""
