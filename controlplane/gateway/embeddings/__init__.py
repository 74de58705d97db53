"""Embeddings: tasks of vectors that clients of OpenAI's API ask, with texts.

In: the body and headers of ``POST /v1/embeddings``. Out: its answer, of vectors of one version of
one model. Read ``asked`` (what a request asks for), ``cutting`` (how its texts are cut into
queries), ``collected`` (what a query gives instead of bytes), then ``answering``; ``described`` is
for the OpenAPI document.

It hands its queries to the query path, as the other dialects do.
"""
