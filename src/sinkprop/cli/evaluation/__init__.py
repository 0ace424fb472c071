"""Parts of `sinkprop evaluate`: what documents are ranked by, and results as tables, JSON and CSV."""
