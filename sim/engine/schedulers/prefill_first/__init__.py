"""Prompts before tokens: the rules of SGLang and of vLLM V0."""
