"""What people see in a browser: the dashboard at ``/``, the API reference, and pages of plots.

In comes nothing but the name of a page; out go its text, in which style sheet and scripts are
inlined, and the headers that allow a browser to run these and no others. What a page shows it reads
from the control API itself (``index.html``, ``docs.html``), or it is put in as JSON by
``controlplane.plots`` (``plot.html``). ``error_page.py`` is what a person meets where a program
gets an error as JSON.

Read ``pages/__init__.py`` first, then ``pages/style.css`` (colours, light and dark) and
``pages/charts.js``, the only renderer of diagrams; ``pages/listing.js`` has the lists and tables,
and ``pages/elements.js`` makes elements for all pages. The dashboard's own scripts are in
``pages/index/``: read ``page.js``, which has a turn of it, and then the part that you want to
change. ``figures.js``, ``glance.js``, ``causes.js`` and ``asking.js`` are pure functions. Nothing
of the project is imported here, and no page asks for anything from elsewhere.
"""
