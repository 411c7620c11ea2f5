"""The reference trainer in PyTorch."""
