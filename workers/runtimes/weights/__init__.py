"""Weights: how the runtimes of ONNX files get them without having them twice.

In: an ONNX file. Out: a session or a model of it, whose weights were mapped from the file while it
was made, and then are the process's own. Read ``mappable`` (a model without its weights, and a copy
whose weights can be mapped) and ``mapped_file`` (memory of one's own in place of a file's), then
``onnx_weights`` and ``openvino_weights``.
"""
