"""One arena for all ONNX Runtime sessions of a process on the CPU.

A session keeps an arena of its own, and what its largest batch took stays there for good. Sessions
that run one after the other can use the same memory: an arena is registered with the library, and
sessions take it instead. Weights lie outside, so that they leave with their session.
"""

from typing import Any

GIVE_BACK = ("memory.enable_memory_arena_shrinkage", "cpu:0")


class SharedArena:
    """Not shared until ``share`` is called: a process that measures a variant gives it an arena of
    its own, and sees what it takes."""

    def __init__(self) -> None:
        self.gives_back = False
        """Whether the next run is to give back what is free in the arena."""
        self._shared = False
        self._registered = False

    def share(self) -> None:
        """Have sessions that are made from now on use one arena."""
        self._shared = True

    def prepare(self, ort: Any, options: Any) -> bool:
        """Have the session that is made with these options use the arena; whether it is shared."""
        if self._shared and not self._registered:
            memory = ort.OrtMemoryInfo(
                "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
            )
            # Without a limit, extended in ever larger regions: what lies in two of them cannot be
            # joined, and where each was as large as asked for, twice as much was taken.
            ort.create_and_register_allocator(memory, ort.OrtArenaCfg(0, -1, -1, -1))
            self._registered = True
        if self._shared:
            options.add_session_config_entry("session.use_env_allocators", "1")
            options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        return self._shared

    def giving_back(self) -> Any:
        """Options of a run that gives back what is free; the next ones do not."""
        import onnxruntime as ort

        self.gives_back = False
        options = ort.RunOptions()
        options.add_run_config_entry(*GIVE_BACK)
        return options


ARENA = SharedArena()
"""Of this process: ONNX Runtime has one environment in each."""
