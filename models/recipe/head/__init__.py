"""A head for further tokens (MTP) of the built-in model, trained on what that model says, for tests of drafts."""
