"""What a curve alone shows: symptoms, the verdict where a log allows no more."""
