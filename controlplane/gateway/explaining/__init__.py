"""What ``POST /v1/explain`` answers: what a query would get now, and why.

``explanation`` puts the decision of ``planner.selection`` into words; ``accuracy_doubt`` says where
the accuracies that it goes by lie too close together to be told apart.
"""
