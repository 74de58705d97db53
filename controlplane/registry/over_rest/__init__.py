"""Registering over REST: an upload, and then the command line in a child process.

Read ``uploads`` (the form, and room for it on disk), ``operations`` (what runs, and what callers
poll) and ``outcomes`` (what became of it).
"""
