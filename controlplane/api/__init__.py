"""The control API: what is registered, measured, planned and running, and how to change it.

In come HTTP requests below ``/v1`` and for the pages of the dashboard. Out go JSON bodies made by
``controlplane.views``, changes to the catalog, and registrations that are begun.

Read ``context`` (what every route stands on), ``routes`` (all of them together), ``reading`` (what
shows and changes nothing), ``inventory`` (how many workers are wanted), ``devices`` (what kinds
there are, and on which nodes), ``quarantine`` (what failed, and the end of that), ``answers``
(whose answers have changed, and that this is as it should be), ``clients`` (what
was asked by each key), ``changed_tasks`` and ``sharing`` (what is changed of tasks), ``versions``
(a version's life: registering, stages, canaries, removal), ``rules`` and ``peaks`` (what operators
say), ``errors`` (one body for every error, and the request's id), ``path_parameters`` and
``bodies`` (what OpenAPI says of bodies that FastAPI does not read).

It may import ``controlplane.views``, ``registry``, ``profiling``, ``dashboard`` and the modules of
``controlplane`` itself. It knows no gateway: the gateway hands it a context.
"""
