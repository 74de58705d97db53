"""Benchmarks of what strangers do to a gateway: crowds of connections, bodies made to hurt."""
