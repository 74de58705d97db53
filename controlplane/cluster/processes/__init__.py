"""Ray's own processes: started or joined, watched, and left.

Read ``ray_environment`` (what they are told), ``named_cluster`` (whether one that others started is
there and lets this installation in), ``ray_processes`` (starting, joining and leaving), then
``control_store`` and ``raylet`` (whether these two still live).
"""
