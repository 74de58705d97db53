"""Answering a file of rows with whatever capacity is free: what ``modelless batch`` does.

Read ``row`` (what is asked with), ``rows_files`` (rows as they are read, one after the other) with
``pictures_folder`` and ``text_rows`` (pictures and texts as rows), then ``asker`` (how they are
asked), over ``rows_query`` (a query and its answer as bytes), ``journal`` (what is kept of each
answer until all are there) and ``answers_files`` (what is left in the end).
"""
