"""The endpoint: one address, one key, OpenAI's and Anthropic's dialect before one model server."""
