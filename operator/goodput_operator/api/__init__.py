"""The custom resources, as pydantic models; ``crds/`` is generated from them."""
