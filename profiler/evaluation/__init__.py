"""Evaluation: how good a variant's answers are.

In: an ``.npz`` file with one array ``(rows, *shape)`` for each input, and what is right: integer
labels ``(rows,)``, or targets ``(rows, *shape)`` of the first output. Out: accuracy in [0, 1] and
agreement with the model itself. Read ``npz_arrays`` (files as they come), ``labelled_rows`` (what
they mean, and how they are split), then ``right_classes`` (by numbers or names) and ``accuracy``
(running a variant over rows, and judging its first output); ``other_outputs`` compares those that
no metric judges. ``suspicions`` says what would make a model better that is bad. ``rows_alone``
refuses one that mixes the rows of a batch, ``freed_batch`` tries one whose batch was fixed,
``output_sizes`` finds sizes of outputs that a model does not say, and ``rows_by_length`` has the
rows of a file for tasks of several lengths; ``position_truth`` has what is right where each
position of a row is judged by itself. Of models of texts, ``text_inputs`` says what a tokenizer
fills, ``text_signature`` gives one the inputs of its task, ``text_rows`` makes rows of numbers, and
``embedding_table`` counts the tokens that it knows.

Imports ``variants`` and ``workers.runtimes``.
"""
