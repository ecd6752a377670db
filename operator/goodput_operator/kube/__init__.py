"""The only part that speaks to the API server. Objects go in and come out as plain dicts."""
