"""Places the parts of a model on devices. Pure: sizes in, a plan and its reasons out."""
