"""Neighbours: the gateways of one machine, which share a port.

Each is a process with an event loop of its own; the kernel deals new connections out among them.
``siblings`` adds up what all of them count, ``handover`` carries sockets from one to another over
Unix sockets in the run directory, ``steering`` leads new connections away from a socket that is to
be closed, and ``balance`` decides which connections a gateway that has too much to do passes on.
``neighbourhood`` has ``handover`` and ``balance`` of one gateway.

It imports ``controlplane.gateway.counting`` and nothing else of the gateway.
"""
