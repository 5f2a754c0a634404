"""LMDeploy's api_server (0.12.1): all routes under /lmdeploy; at the root, those that no other dialect has."""
