"""``make demo``: a training run on real nodes loses one of them, and goes on."""
