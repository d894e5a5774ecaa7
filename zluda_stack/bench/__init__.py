"""How fast targets answer: the same model, prompts and client load, and what a difference means."""
