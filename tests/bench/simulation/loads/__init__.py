"""Loads: ``wasted`` counts what plans load, and what of it was worth its load."""
