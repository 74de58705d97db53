"""What several gateways lose beside one that knows all queues."""
