"""Quantisation: models that compute on 8 bits.

In: a model as ONNX, and rows that are typical of its inputs. Out: an ONNX file in QDQ form, and
which nodes kept their precision.

Read ``onnx_int8`` (the builders with calibration), then what they call in order: ``scope`` (which
nodes are quantised), ``sensitivity`` (which of them lose too much and stay fp32) and ``qdq``
(writing the file). ``onnx_dynamic`` quantises activations as they come, within bounds.

Imports ``variants.builders`` and what these may. The method and its numbers are in
docs/decisions/0009-quantisation.md.
"""
