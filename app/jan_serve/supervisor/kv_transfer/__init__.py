"""Transfer of sequence states between servers over TCP (disaggregated serving)."""
