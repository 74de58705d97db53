"""The worker's end of the tensor channel: where gateways and the control loop connect.

Read ``peer`` (one connection: it proves itself, and its frames become queries) and ``server`` (the
socket, and what all connections share).
"""
