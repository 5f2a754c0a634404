"""DistServe: one node computes the prompt, another one the answer. LMDeploy's protocol between proxy and nodes."""
