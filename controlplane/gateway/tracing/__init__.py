"""Traces of queries, in OpenTelemetry's form, for a collector that an operator names.

- ``watched``: where the answer of a query goes that may be traced, and which queries are, by what
  ``allowance`` leaves.
- ``ended``: what is known of one when it has ended.
- ``spans``: that as OpenTelemetry's spans.
- ``sending``: the thread in which spans are made and sent.

Nothing of it is imported but ``watched`` where no collector is named.
"""
