"""Watched answers: how the answers of each variant are divided among its classes, over time.

``answer_watch`` takes what workers have counted, has it judged by ``planner.feedback.answers``,
tells what has changed, and keeps it for the control loop that takes over. ``answer_words`` says it
in words.

May import ``planner.feedback`` and ``variants``, and of the controller the journal and kept notes.
"""
