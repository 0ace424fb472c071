"""Scores and labels to the expected gain and its gradient; nothing is trained here."""
