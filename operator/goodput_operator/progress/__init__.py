"""The HTTPS endpoint to which workers report their steps and their durable checkpoints."""
