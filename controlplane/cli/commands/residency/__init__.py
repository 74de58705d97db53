"""Commands by which operators say what stays loaded, what may not run, and when nothing changes.

``variants`` (``pin``, ``forbid``, ``evict``) and ``rules`` (``freeze``, ``thaw``, and all that was
said), over ``operator`` (who says it, and why) and ``durations`` (for how long).
"""
