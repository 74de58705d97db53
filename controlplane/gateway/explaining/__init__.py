"""What ``POST /v1/explain`` answers: what a query would get now, and why.

``explanation`` puts the decision of ``planner.selection`` into words; ``plan_words`` says what of
it is the plan's, and ``accuracy_doubt`` where the accuracies that it goes by lie too close together
to be told apart.
"""
