"""Checks of model files from outside: every reason to refuse one, before anything runs it.

In: the path of an ``.onnx`` file or of a ``torch.export`` archive. Out: what the model says of
itself (inputs, outputs, opset, size); or ``InvalidArtifact`` with one sentence.

Read ``onnx_check`` with ``onnx_file`` (reading one), ``onnx_walk``, ``onnx_light`` (one without the
numbers in its weights) and ``onnx_signature`` (what it takes and gives) first;
``class_names`` reads what classes are called,
``onnx_plain`` brings what converters write into the form that is served, ``onnx_edges`` and
``onnx_batch`` write a model with other inputs and outputs or another batch, where ``edges`` asks
for it, ``open_axis`` one with a size for the axis that a model of texts leaves open, and
``onnx_parts`` one with the weights that lie beside it. An archive is checked by ``archive``.
``zip_layout`` and ``json_shape`` are what it and others stand on: zip files whose members are
where they say, and JSON documents of a known shape.

Imports ``variants.types``, ``errors``, ``figures`` and ``catalog``. The files are read as bytes,
JSON and protobuf messages; no code in them is run.
"""
