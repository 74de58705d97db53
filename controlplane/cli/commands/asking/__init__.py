"""Commands that ask or watch a running installation for a while, until they are done or
interrupted: ``batch``, ``replay`` and ``top``.
"""
