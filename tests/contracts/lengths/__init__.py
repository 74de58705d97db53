"""Buckets of lengths, in every catalog."""
