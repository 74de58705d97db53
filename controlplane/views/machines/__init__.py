"""Machines: whether what runs on them has what it needs. ``core_shortage`` judges the cores,
``certificate_status`` for how long the gateway's certificate lasts, ``loop_silence`` whether the
control loop turns, ``keys_file`` whether the file of clients' keys can be read.

In come readings of processes, out go values and sentences; nothing here looks at a machine.
"""
