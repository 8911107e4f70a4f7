"""What every room shares: types, mesh, start-up, randomness, files."""
