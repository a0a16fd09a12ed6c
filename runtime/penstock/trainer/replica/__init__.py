"""A member of a session that is several processes: they hold one sharded model together."""
