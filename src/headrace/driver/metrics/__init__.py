"""What the driver makes of measurements: sums, what was done in the last minute, what the status shows and others observe."""
