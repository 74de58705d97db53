"""The control loop under rules of operators."""
