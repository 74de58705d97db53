"""New versions that prove themselves on a share of the queries, and what clients say of answers.

In: queries that name no variant, how they ended, feedback of clients. Out: choices of canaries'
variants, and counts by version, for the control loop to judge.

Read ``arms`` (what is counted) and ``diversions`` (which queries are diverted) first, then
``recent_answers`` (which answers may still be judged) and ``feedback`` (how a client's word finds
the gateway that gave the answer, on this machine or, by ``feedback_elsewhere``, on another one) by
``feedback_routes``.
"""
