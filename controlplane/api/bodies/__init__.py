"""What the OpenAPI document says of bodies that routes read or write by themselves.

``queries`` (ours, and their explanation), ``protocol`` (of the Open Inference Protocol, version 2)
and ``registration`` (the form of a model). ``parts`` is what several of them have, and
``named`` has the document call them by their names.

Imports the limits of ``controlplane.files`` and nothing else.
"""
