"""What commands have in common that ask many queries: ``modelless replay`` and ``batch``.

Read ``rows`` (what is asked with), then ``connections`` (how it gets to the gateway) and
``shown_answers`` (answers as lines).
"""
