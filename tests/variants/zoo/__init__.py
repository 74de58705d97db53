"""The example models."""
