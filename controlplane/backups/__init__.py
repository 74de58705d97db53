"""Backups: one file that holds an installation's catalog and artifacts.

In come a database, an artifact store and the name of a file; out goes a tar file, or what was in
one. Read ``archive`` (the form of the file), ``writing``, ``reading`` and ``trial``. What is copied
may be in use meanwhile; what is filled must be empty. It may import ``variants``, and of
``controlplane`` client keys and timestamps.
"""
