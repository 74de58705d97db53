"""What is to be changed about the inputs and outputs of a model, without what reads models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What to change; nothing, unless it is said."""

    input_names: tuple[str, ...] = ()
    """New names of the inputs, in the file's order; none: they stay."""
    output_names: tuple[str, ...] = ()
    keep_outputs: tuple[str, ...] = ()
    """Outputs that stay, by the file's names, in this order; none: all. What only the others need
    goes with them, inputs too. Names of outputs are then of these."""
    fix_inputs: tuple[tuple[str, float], ...] = ()
    """Inputs that have one value for good, and are none any more: a number by the file's name,
    which all elements get."""
    batch_axes: tuple[tuple[str, int], ...] = ()
    """Inputs and outputs whose rows are along another axis than the first, by the file's names; it
    becomes the first."""
    axis_sizes: tuple[tuple[str, int], ...] = ()
    """Sizes of open axes, by their names or as ``INPUT:AXIS``."""
    free_batch: bool = False
    """Whether a first axis of a fixed size is to take any number of rows."""
    cast_float16: bool = False
    """Whether inputs and outputs of float16 become float32, cast at the edges."""

    def __bool__(self) -> bool:
        names = self.input_names or self.output_names or self.keep_outputs
        values = self.fix_inputs or self.batch_axes or self.axis_sizes
        return bool(names or values or self.free_batch or self.cast_float16)
