"""What variants of a worker have together: sessions, and the memory of their batches.

In: what a session is made of, and who makes it. Out: the session, made once for all that use it at
a time (``sessions``). ``workers.runtimes.onnx`` uses it for variants whose files are the same. All
sessions of ONNX Runtime on the CPU take what their batches need from one ``arena``.
"""
