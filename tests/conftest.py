"""What all tests share."""

from hypothesis import settings

# Machines differ and are shared: a slow example is no fault.
settings.register_profile("goodput", deadline=None)
settings.load_profile("goodput")
