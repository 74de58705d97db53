"""What the Open Inference Protocol asks for beside inference: the server, its tasks and variants.

``protocol_views`` says what is there, ``repository`` loads and unloads, and ``routes`` puts both
behind HTTP; over gRPC ``controlplane.gateway.grpc.answers`` does. Inference itself has its own path
(``controlplane.gateway.query``).
"""
