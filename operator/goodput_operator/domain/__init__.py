"""The pure core: no kopf, no client, no clock, no environment, nothing awaited."""
