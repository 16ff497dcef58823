"""The status listener of an engine: health for balancers, a page for people, JSON and metrics."""
