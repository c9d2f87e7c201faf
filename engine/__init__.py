"""The inference engine: scheduler, paged KV cache, model and events. Imports no web framework."""
