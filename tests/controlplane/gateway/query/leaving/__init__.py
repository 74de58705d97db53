"""Clients that leave before their answers."""
