"""Texts: queries whose rows are texts, of tasks that have a tokenizer.

``asked`` tells such a query by its inputs, with next to nothing for queries that are not.
``reading`` makes its rows of the texts that are ``given``, in a process that a gateway has for it
(``protection.read_bodies``): a tokenizer takes up to seconds to be loaded and hundreds of MiB of
memory, and a text as long as its client likes. It imports the library only there. ``holding`` says
which versions hold a query, where their tokenizers differ.
"""
