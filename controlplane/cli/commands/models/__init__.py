"""Commands of a model's life.

``register``, ``variants build``, ``profile`` and ``repair`` work on the state directory; ``stage``
(``promote``, ``retire``, ``remove`` and ``quarantine``) asks a running gateway.
"""
