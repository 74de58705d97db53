"""The gRPC side of the gateway: the Open Inference Protocol for its generated clients.

In come calls of clients. Out go queries on the same path as HTTP's, and what the gateway knows of
tasks, variants and workers. ``open_inference.proto`` holds the protocol's messages, and the files
beside it those of probes (``health``), of tools (``reflection``) and of typed errors.

Read ``grpc_server`` (the socket and its limits) with ``service`` (the procedures), ``inference`` (a
request to a query, outputs to a reply) with ``wire`` (its bytes) and ``messages`` (the classes),
``stream_writer`` (answers of a stream), ``answers`` (everything but inference), ``reflection`` and
``statuses`` (errors).

It may import ``controlplane.gateway.query``, the rules of access and the limits of clients from
``controlplane.gateway.http``, and what the procedures show (``open_inference``). Only the gateway
imports it, and only where a port is set: it brings grpc with it.
"""
