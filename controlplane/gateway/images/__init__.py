"""Images: a query of ``/v1/query`` whose body is a picture, and whose SLO stands in headers.

``asked`` reads the headers, ``misplaced`` refuses them where they stand with another query, and
``described`` has them for the OpenAPI document. ``pixels`` makes a row of a task's input of a
picture, of one length or of several. It runs in the process that reads long bodies
(``protection.read_bodies``), whose memory and time are bounded: what a picture unpacks to is not
known before. It imports Pillow only there.
"""
