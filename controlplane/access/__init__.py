"""Who may ask a gateway, and over what.

``exposure`` (from where it can be reached, and what must hold before other machines can), ``tls``
(certificates, of the gateway and as its clients trust them), ``bearer`` (the header by which a
client shows its token or key), ``client_keys`` (the keys of clients, their names and shares, as
their file has them) and ``key_changes`` (how that file is changed). How a request is permitted by
them is ``controlplane.gateway.http.access``.
"""
