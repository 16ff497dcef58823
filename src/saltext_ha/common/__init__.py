"""What every room may use: errors, validators, files written whole, addresses, fail points."""
