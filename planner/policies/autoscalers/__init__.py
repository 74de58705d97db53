"""What people would run instead: replicas of one variant per task, scaled by an autoscaler.

In and out as in ``planner.policies``. Each task is a deployment of its best static variant
(``best_variants``); ``deployments`` keeps its replicas on devices, and one of three rules says how
many there are to be, each with the defaults of its documentation: ``ray_serve``, ``kubernetes`` and
``dynamo``, behind one protocol (``scaling_rule``). ``scaled`` is the policy around them.
"""
