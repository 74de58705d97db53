"""What the control loop tells: events found from what was seen before and now, and their journal.

``status_events``, ``sightings``, ``storage_watch``, ``core_watch``, ``clock_watch``,
``slo_watch``, ``succession``, ``load_events`` and ``plan_events`` find them, from values alone;
``recorder`` keeps those values from one look to the next, with ``answer_pace`` (how quickly catalog
and live state answer), and ``journal`` stores what was found, with ``tick_records`` of the turns
and ``plan_changes`` (what differs, in words). ``loop_report`` tells gateways how the control loop
is.
"""
