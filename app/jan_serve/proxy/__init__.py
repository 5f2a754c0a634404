"""`jan-serve proxy`: one address for many servers, with LMDeploy's proxy protocol."""
