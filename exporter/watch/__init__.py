"""The watch: polling, the published snapshot, and the detection of pauses."""
