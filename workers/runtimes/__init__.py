"""Runtimes: each loads variants of one back end and runs batches.

In: a load spec (artifact, signature, options) and a number of threads; then batches, one array
``(rows, *shape)`` for each input of the task. Out: one array ``(rows, *shape)`` for each output; or
``RuntimeFailed``.

Read ``protocol`` (what a runtime is) and ``registry`` (all of them by name, imported when used).
``echo`` is the smallest one. ``onnx`` with ``onnx_providers``, ``openvino``, ``pytorch`` and
``tensorrt`` are the real ones, over ``options``, ``signature``, ``sharing`` (sessions of several
variants, and their arena), ``weights`` (how those of ONNX files get them), ``cuda`` and
``engine_store``; on GPUs also ``cuda_graphs``, ``gpu_thread``, ``locked_memory`` with
``uploading``, and ``idle_work`` (what a load leaves for later). To add one: CONTRIBUTING.md; from a
package of your own, docs/reference/bringing-a-model.md.

Imports ``variants`` and ``workers.types``; back ends only inside their own modules' functions.
"""
