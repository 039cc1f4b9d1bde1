"""What is asked and judged before a sync begins: whether these options fit these clusters."""
