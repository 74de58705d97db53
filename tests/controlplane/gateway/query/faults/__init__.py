"""Random clients and workers that fail, in virtual time: ``virtual_loop``, ``scripted_workers``."""
