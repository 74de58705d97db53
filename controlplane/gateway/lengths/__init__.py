"""Rows of several lengths, filled up to that of a bucket.

In: rows as lists or as tensors, each as long as it is. Out: how long they are, and tensors of the
length of the bucket that takes them (``filling``).

Imports ``variants`` and the type of a tensor. The packages that read queries, ``query`` and
``grpc``, call it where a query names a task of several lengths.
"""
