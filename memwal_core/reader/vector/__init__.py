"""Nearest rows among the newest versions."""
