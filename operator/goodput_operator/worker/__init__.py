"""The reference client for training code. ``goodput_worker`` stands alone and may be copied."""
