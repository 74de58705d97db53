"""What commands that ask have in common: ``query``, ``explain``, ``replay`` and ``batch``.

Read ``query_options`` (what a query asks for), ``rows`` (what is asked with; ``example_digit`` has
the row where nobody names any), then ``connections`` (how it gets to the gateway) and
``shown_answers`` (answers as lines).
"""
