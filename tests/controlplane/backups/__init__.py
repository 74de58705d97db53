"""Backups, on real databases."""
