"""What ``modelless up`` does around the applications: before, beside and after them.

Comes in: settings. Goes out: a running installation on this machine or on a Ray cluster, a state
file that says where it is reached, and after the end no process and no lock.

Read ``supervisor`` (start, watch, stop) with ``awaited_nodes`` (the nodes of a cluster that are to
come), ``found_nodes`` (the kinds that they are) and ``applications`` (what is deployed), then
``state_directory`` (the folder that one run owns) and ``claim`` (that it owns it alone, and ports),
``interruption`` (what signals do), ``processes`` (ending what was started here),
``readiness`` (what is loaded), ``presence`` (the state file of a run), ``reached_gateway`` (which
gateway that file names where several machines have one), ``valkey`` (the embedded live state),
``settings_warnings`` (what is allowed and probably not meant), ``process_limits`` (within which
nothing can start), ``example_rest`` (example models that are made while the first answer); for
``modelless upgrade`` the folder ``replacing``; and for ``modelless doctor`` the module ``doctor``
with its ``checks``.

It may import everything of the control plane but the command line.
"""
