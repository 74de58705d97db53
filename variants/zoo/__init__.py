"""Example models: the digits family, seven models of one task, trained where they are used.

In: scikit-learn's images of digits. Out: a folder with seven ONNX files and rows for calibration
and evaluation. Read ``digits`` (the recipe), then ``digits_models`` (the architectures, in torch).
"""
