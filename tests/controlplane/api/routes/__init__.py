"""Routes of the control API over a catalog in memory, by what they show or change."""
