"""The workers that the control loop is connected to: which there are, and what they say.

Read ``roster`` (which workers the cluster has), ``worker_pool`` (the connections to them),
``worker_reports`` (what they say, as decisions take it) and ``silent_workers`` (those that have
said nothing for so long that they are ended).
"""
