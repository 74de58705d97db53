"""Inference requests of the Open Inference Protocol: from their JSON and raw bytes to a query.

Read ``parsing`` (the request as a whole, and what it needs), ``inputs`` (its tensors, with
``datatypes``) and ``wanted_outputs`` (how the reply is to look). What stands there of shapes,
parameters and outputs holds for gRPC as well, which has other bytes for it
(``controlplane.gateway.grpc``).
"""
