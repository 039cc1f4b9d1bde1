"""The definition of equality: what is compared, how, and what a difference means. Writes only the state of a check."""
