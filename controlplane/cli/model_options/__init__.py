"""What commands are told of models: the ``options``, alike for each command, and the ``texts`` that
are typed for them, from texts to values.
"""
