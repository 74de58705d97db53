"""Exporting: a trained model of the user's process becomes a file that can be registered.

In: a PyTorch module or a scikit-learn estimator, and example inputs. Out: a file that was seen to
answer as the model does, and what stands in it (``exported``), or an ``ExportError`` that says what
stands in the way.

Read ``export`` first, which leads to ``sklearn_onnx`` and ``sklearn_values`` for scikit-learn and
to ``torch_archive`` for PyTorch, over ``example_inputs``, ``tracing``, ``functional`` and
``onnx_file``. ``agreement`` checks that the file answers as the model does.

Imports ``variants``; torch and skl2onnx when used.
"""
