"""Trees: folders of states, pillar and configuration that all masters serve the same."""
