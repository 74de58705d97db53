"""The shell: gateway, control loop, cluster, live state, settings and command line."""
