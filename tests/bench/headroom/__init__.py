"""Whether the headroom that is told is there: in virtual time (``simulated``) and live."""
