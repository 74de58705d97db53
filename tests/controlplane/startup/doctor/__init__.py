"""What the doctor finds, one check at a time, on directories and ports of the test's own."""
