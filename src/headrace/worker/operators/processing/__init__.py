"""What runs a user's `Processor`: its records, stores, timers and punctuations."""
