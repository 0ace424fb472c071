"""Entry point of `python -m sinkprop`, for environments whose scripts are not on the path."""

from sinkprop.cli import main

# The processes that a comparison starts import this module under another name and must not run main().
if __name__ == "__main__":
    main()
