"""What answers over HTTP: the metrics and the health of a job that runs, and the pages of its operators."""
