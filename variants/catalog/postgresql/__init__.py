"""What the SQL catalog needs of PostgreSQL's driver alone: imported where a catalog is kept there.

Read ``bounded_connection``.
"""
