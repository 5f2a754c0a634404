"""POST /v1/audio/transcriptions, for models that hear."""
