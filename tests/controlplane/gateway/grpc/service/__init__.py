"""gRPC through a real gateway, a real channel and real workers: the same answers as over HTTP."""
