"""A number within bounds."""


def bounded(value: float, least: float, most: float) -> float:
    """The value, or the bound that it lies beyond: ``min(max(value, least), most)``, which takes
    five times as long. What learns from each batch does it ten times."""
    return least if value < least else most if value > most else value
