"""Around the pure core: the store of views, the work queue, the worker, the executor."""
