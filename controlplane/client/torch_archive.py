"""A PyTorch module as an archive that can be served without trusting it: one ``.pt2`` file.

The file is a ``torch.export`` archive as ``torch.export.save`` of torch 2.13 writes it (a zip whose
members are stored, not compressed) that ``torch.export.load`` reads unchanged, with one member
added and no member that holds a pickle. The folder that all members lie in is always ``archive``,
and the same program gives the same bytes, whatever the file is called::

    archive/models/model.json                            the program's graph, as JSON
    archive/data/weights/model_weights_config.json       name -> weight_<n>; "use_pickle": false
    archive/data/weights/weight_<n>                      raw bytes of one storage
    archive/data/constants/model_constants_config.json   name -> tensor_<n>; "use_pickle": false
    archive/data/constants/tensor_<n>                    raw bytes of one storage
    archive/data/sample_inputs/model.pt                  empty, always: no inputs are kept
    archive/extra/modelless.json                         what the archive says of itself, below
    archive/modelless/model.onnx                         the same program as ONNX
    archive/archive_format  archive_version  byteorder   "pt2"  "0"  "little"
    archive/.data/version  .data/serialization_id        "6\\n"  40 digits

There is no ``custom_obj_*``, no ``opaque_obj_*``, no legacy ``*.pt`` of weights or constants and no
compiled code (``data/aotinductor``). The ONNX is not below ``extra/``, because
``torch.export.load`` decodes everything there as UTF-8.

``extra/modelless.json`` is UTF-8 JSON of at most a few KiB; shapes are of one row, the batch axis
left out, and ``opset`` is that of the ONNX::

    {"format": 1, "torch": "2.13.0+cpu", "opset": 20,
     "inputs": [{"name": "pixels", "dtype": "float32", "shape": [64]}],
     "outputs": [{"name": "scores", "dtype": "float32", "shape": [10]}]}

The program takes its inputs by position, in that order, and returns a tuple of its outputs, in that
order. Every input and output has the batch as its first axis, and any batch from 1 row on runs. The
ONNX has the same names.
"""
