"""The TensorRT runtime: ONNX files run as engines that are built for the GPU at hand.

Read ``runtime`` (loading and running), then ``engine_building`` (from ONNX to an engine). Built
engines are kept by ``workers.runtimes.engine_store``; memory and streams of the device come from
``workers.runtimes.cuda``.

Imports ``variants`` and ``workers``; tensorrt only when a runtime loads.
"""
