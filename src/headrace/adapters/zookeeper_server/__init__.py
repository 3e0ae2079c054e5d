"""A ZooKeeper server on this machine, for tests and trials: a child process, from the jars that come with PySpark."""
