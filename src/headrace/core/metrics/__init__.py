"""What is measured of a job: the table of metrics, rates over the last seconds, and what is observed of a running job."""
