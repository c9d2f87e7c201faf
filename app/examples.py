"""What the page offers to send: example prompts, which a burst also draws from."""

from __future__ import annotations

EXAMPLES = (
    "What is the capital of France?",
    "Explain in three sentences why the sky is blue.",
    "Write a haiku about a paged cache.",
    "Give me five names for a friendly robot.",
    "How does a bicycle stay upright?",
    "Tell a short story about a lighthouse keeper and a storm.",
    "List the planets of the solar system with one fact about each.",
    "What is the difference between a process and a thread?",
    "Describe how bread is made, step by step.",
    "Why do cats purr?",
    "Write a polite letter that asks a neighbour to turn the music down.",
    "Explain prefix caching to a ten-year-old.",
    "What should I see in Rome in one day?",
    "Count from one to twenty in words.",
    "How do vaccines work?",
    "Write a limerick about a slow computer.",
)
