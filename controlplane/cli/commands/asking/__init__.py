"""Commands that ask or watch a running installation for a while, until they are done or
interrupted: ``batch``, ``replay`` and ``top``; and ``explain``, which says what a query would get.
"""
