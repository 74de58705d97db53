"""Which profiles are due, in which order, and where and when they are measured.

Nothing is measured here. Read ``profiles`` (those that are missing or not true any more) with
``staleness`` (what has changed on this machine since), then ``orders`` (what is measured first)
with ``unanswered`` (what no query is answered without) and ``places`` (on which node), ``rests``
and ``setbacks`` (for how long what was tried is left alone).
"""
