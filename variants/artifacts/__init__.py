"""The artifact store: files named by the SHA-256 of their bytes.

In: files of models and variants. Out: read-only files at a path that follows from their digest, or
an error that says that one is missing or damaged.

Read ``protocol`` first (what callers may rely on), then ``store`` (the file system) with
``plain_files``, then ``integrity`` (when a file has to be read again to be trusted). A machine that
does not see the store has copies (``cache``), which it gets from a store elsewhere that answers
(``served``), or from a bucket (``s3``). ``storing_notes`` say what is being stored, for whoever
comes after a writer that was killed.

Imports ``variants.types``, ``errors`` and ``disk``.
"""
