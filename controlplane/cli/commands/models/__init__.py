"""Commands of a model's life.

``register``, ``build`` and ``judge`` (of ``variants``), ``tokenizer`` (of ``tasks``), ``profile``,
``repair`` and ``artifacts`` work on the state directory; ``variant_table`` is what several print,
and ``answer_words`` says how answers are divided among the classes. ``stage`` (``promote``,
``retire``, ``remove`` and ``quarantine``), ``canary`` (with ``rollback``) and ``answers`` ask a
running gateway.
"""
