"""Builders: one model becomes variants that differ in back end, precision, size and device.

In: a ``Material``: the model as ONNX, and where given its PyTorch program, calibration rows,
training rows and a larger model. Out: one artifact file for each kind of variant, and a clause
about how it was made; or ``VariantNotBuilt`` with the reason.

Read ``protocol`` (what a builder is) with ``onnx_builder`` (what those of ONNX Runtime on CPUs have
in common), then ``registry`` (all kinds, with what each needs), then ``onnx_fp32`` (the model
itself, where every other builder starts). ``quantisation`` makes 8-bit variants, ``compression``
smaller ones, ``onnx_open`` one file for several lengths, and ``onnx_fp16``, ``onnx_gpu``,
``openvino``, ``pytorch`` and ``tensorrt`` those of other precisions and runtimes. ``processor`` and
``gpu_requirements`` say what this machine can run; ``activations``, ``calibration``, ``float16``
and ``prepared`` are tools of several builders.

Imports what stands before it in ``variants``; heavy libraries only while it builds.
"""
