"""Commands about plans and what they are made for.

``solve`` (of ``plan``), ``simulate`` and ``export`` (what an installation has, as files for those
two) try a plan before it is lived; they need files, and no running installation but ``export``.
``peaks`` tells a running one of demand that is known beforehand.
"""
