"""A fleet of tables on real servers: live writers, broken tables among them, and processes that are killed."""
