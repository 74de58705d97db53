"""Commands of a model's life.

``register``, ``variants build``, ``profile``, ``repair`` and ``artifacts`` work on the state
directory; ``stage`` (``promote``, ``retire``, ``remove`` and ``quarantine``) and ``canary`` (with
``rollback``) ask a running gateway.
"""
