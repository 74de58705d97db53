"""Texts as rows: which inputs of a task a tokenizer fills, and what it reads.

``inputs`` says it of tasks, ``tables`` reads files of texts, and ``tokenising`` makes texts into
numbers. Only that imports the library ``tokenizers``, where texts are read and nowhere else.
"""
