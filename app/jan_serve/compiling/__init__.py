"""The helper process that compiles constraints and tool-call grammars."""
