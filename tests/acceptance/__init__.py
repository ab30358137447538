"""A whole fleet of real processes, killed and injured from outside; the booking service's journal is the verdict."""
