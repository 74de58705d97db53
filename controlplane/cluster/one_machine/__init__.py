"""What is so only where all runs on one machine, under a Ray that was started here.

``single_machine`` (which processes of Ray are not started) with ``idle_agent`` (what stands in for
one of them), ``seldom_nodes`` (how often Serve's controller asks about nodes), ``template_process``
(what Ray's workers are forked from) with the two scripts that it runs, ``worker_template`` and
``worker_launcher``, and ``spare_room`` (cores that are kept for one more worker while others are
replaced). ``left_behind`` removes what processes that have ended leave: their oldest logs,
and sockets.
"""
