"""Registering over REST: an upload, and then the command line in a child process.

Read ``uploads`` (the form, and room for it on disk), ``operations`` (what runs, and what callers
poll), ``progress`` (the child, and what it says meanwhile) and ``outcomes`` (what became of it).
"""
