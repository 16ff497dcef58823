"""replica.db: what this master knows of keys, what it last applied, and what happened."""
