"""Ray, as the control plane uses it: its processes, the Serve applications, and their workers.

Comes in: settings, and applications that ``controlplane.app`` has built. Goes out: where workers
are reached, how many Serve was told to run, and sentences about what does not start.

Read ``processes`` (starting, joining, watching and leaving Ray) with ``one_machine`` (what is so
only there) and ``bare_serve``, then ``serve_applications`` (deploying applications and reading
their state), ``ray_adapter`` (what the control loop asks of the cluster), ``protocol`` (the same as
the loop sees it), ``start_reports`` (what Serve says of a start, as sentences, without Ray),
``nodes`` (what nodes are) with ``kinds`` (which kinds that makes, without Ray) and
``kind_placement`` (on which nodes workers of a kind run), ``measuring_nodes`` (measuring variants
there), ``kind_applications`` (kinds that come and go), ``sending_settings`` (the settings that
travel to replicas, as ``sent_settings``; some earlier builds look for these in
``replica_arguments``) with ``head`` (what replicas of other machines have from the head: secrets
and artifacts), ``patience`` (a limit for calls that have none), and ``autoscaling``
(the nodes that are asked for).

It imports settings, slices, ``building`` and ``profiling``, and what lies left of the control
plane. Every call to Ray that the control plane makes stands here; only ``controlplane.app``,
``workers.replica`` and ``workers.deployment`` know Ray besides.
"""
