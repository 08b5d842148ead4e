"""What is timed. Ratios are of one run; seconds say nothing of another machine."""
