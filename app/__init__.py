"""The app: a relay that remembers. Routes, hub, reducer and page; imports no torch."""
