"""Benches that start a whole installation and hold something against what happens there."""
