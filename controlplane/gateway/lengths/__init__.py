"""Rows of several lengths, filled up to that of a bucket, and answers that are cut back.

In: rows as lists or as tensors, each as long as it is. Out: how long they are, and tensors of the
length of the bucket that takes them (``filling``). Outputs that are as long as the rows go the
other way: in with the bucket's length, out with each row's own (``cutting``). ``named`` says at
which lengths a variant is that a query names.

Imports ``variants``, what the planner knows of a query, and the type of a tensor. The packages that
read and answer queries, ``query``, ``grpc``, ``http`` and ``images``, call it where a query names a
task of several lengths.
"""
