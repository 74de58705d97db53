"""Live state: what changes every second and may be lost, on the Redis protocol.

It only distributes. Truth is what the workers report; versions and epochs come from SQL. A live
state that restarts empty is refilled within a tick, and the epochs that it lost do no harm.

Keys, all below ``modelless:``

===================  =====================================================================
``installation``     who leads: installation, host and replica; expires
``workers``          JSON: epoch and the workers' addresses, written by the control loop
``controller``       JSON: what the control loop tells of itself, and stays when it does not
``nodes``            JSON: nodes by device kind, written by the control loop; expires
``machines``         JSON: nodes and what is asked for, written by the control loop; expires
``canaries``         JSON: what was found of each canary, written by the control loop; expires
``notices``          list of JSON: nodes that go, as was said; read by the control loop; expires
``replacing``        JSON: of what one more is to run, by `modelless upgrade`; expires
``nodes_asked``      there while nodes are asked for, written by the control loop
``gateway:<id>``     JSON: one gateway's counters since it started; expires
``history``          list of JSON: how ten seconds went at a gateway; the last ones; expires
``gateways``         set: the ids of gateways that wrote, expired ones included
``operation:<id>``   JSON: progress of a registration over REST; expires after a day
``operations``       set: their ids
``mark``             left by the control loop: where it is missing, everything was lost
``changed``          channel: something above, or the catalog, changed; or all is being stopped
``asked``            channel of JSON: what all gateways are asked, under a token
``answers:<token>``  list of JSON: what they answer; expires after seconds
===================  =====================================================================

Read ``state`` (what is kept), over ``leading`` (who leads, and where workers are) and
``announcements`` (what is said, and asked), which stand on ``connection``. ``following`` has all
gateways take up what was written; by ``seldom`` the control loop asks a slow server less.
"""

from controlplane.live_state.announcements import ENDING
from controlplane.live_state.connection import PREFIX
from controlplane.live_state.leading import Led
from controlplane.live_state.state import LiveState, opened

__all__ = ["ENDING", "PREFIX", "Led", "LiveState", "opened"]
