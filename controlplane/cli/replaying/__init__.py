"""Playing a trace against a running installation: what ``modelless replay`` does.

Read ``player`` (the open loop), then ``outcomes`` (what became of each query, and what that amounts
to), ``comparison`` (what the simulator says of the same trace) with ``held_texts`` (the texts that
it takes for answered by any model), and ``replay_results`` (what is printed).
"""
