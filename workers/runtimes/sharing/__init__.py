"""Sessions that several variants of a worker run.

In: what a session is made of, and who makes it. Out: the session, made once for all that use it at
a time (``sessions``). ``workers.runtimes.onnx`` uses it for variants whose files are the same.
"""
