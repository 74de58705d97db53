"""Where builds of 2026-11-30 had ``SentSettings``: what their replicas were told names it here."""

from controlplane.cluster.sent_settings import SentSettings

__all__ = ["SentSettings"]
