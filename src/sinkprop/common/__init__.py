"""Helpers for arguments, files, text and numerics that do not depend on ranking and would fit any library."""
