"""What-if runs: simulate policies on a problem file, compare them with optima, price the limits."""
