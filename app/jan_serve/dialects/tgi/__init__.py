"""Text Generation Inference's own routes (3.3.6, with 1.4.2's keys): at the root, and strictly under /tgi."""
