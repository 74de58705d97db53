"""Answering a file of rows with whatever capacity is free: what ``modelless batch`` does.

Read ``rows_files`` (rows as they are read, one after the other) with ``pictures_folder`` (pictures
as rows), then ``asker`` (how they are
asked), over ``rows_query`` (a query and its answer as bytes), ``journal`` (what is kept of each
answer until all are there) and ``answers_files`` (what is left in the end).
"""
