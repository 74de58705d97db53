"""One contract, three catalogs: in memory, on SQLite, on PostgreSQL."""
