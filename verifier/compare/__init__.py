"""The one definition of equal: what is compared, how, and what a difference means. Writes nothing."""
