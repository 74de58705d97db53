"""What commands have in common that ask many queries: ``modelless replay`` and ``batch``.

Read ``rows`` (what is asked with; ``example_digit`` has the row where nobody names any), then
``connections`` (how it gets to the gateway) and ``shown_answers`` (answers as lines).
"""
