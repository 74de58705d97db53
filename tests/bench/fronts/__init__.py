"""HTTP servers in front of the same handler, by what a request costs them."""
