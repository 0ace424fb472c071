"""The expected gain of scores and labels, and its gradient; nothing is trained here."""
