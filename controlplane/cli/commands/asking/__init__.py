"""Commands that ask a running installation for answers, and say something of them.

``query`` (which has the options of an SLO) and ``feedback`` (what was right); ``batch``, ``replay``
and ``top``, which go on until they are done or interrupted; and ``explain``, which says what a
query would get.
"""
