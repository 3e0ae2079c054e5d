"""ZooKeeper, through kazoo: what coordinates the processors of a group."""
