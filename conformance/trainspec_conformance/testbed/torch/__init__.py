"""Answers probes with the code of the PyTorch trainer."""
