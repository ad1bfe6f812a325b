"""The claims of the paper, the checks of our own policies, and the verdicts on both."""
