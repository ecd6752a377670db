"""Pure builders: one file per kind of child, from the job's view to a plain dict for the API.

Templates are copied, never changed, and keep every field that the user wrote.
"""
