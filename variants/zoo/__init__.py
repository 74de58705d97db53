"""Example model families, trained where they are used."""
