"""What the control loop does of canaries: it adds up what gateways count, judges, and acts on it.

Read ``canary_watch``.
"""
