"""The training of a ranking network: its settings, minibatches, validation, processes and files."""
