"""The HTTP front, byte by byte: a real server on loopback and clients that behave in every way."""
